"""What all results share: they print themselves, and become tables of other libraries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from nightjar.core.extras import require_extra
from nightjar.errors import ConfigError
from nightjar.reports.formats import visible
from nightjar.reports.panels import Panel

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    import polars as pl

FrameKind: TypeAlias = Literal["pandas", "polars", "arrow"]

ArrowTable: TypeAlias = Any
"""A ``pyarrow.Table``. PyArrow has no types, which strict type checkers would report in every program."""

_EXTRA = "notebook"


class Result(ABC):
    """A result that prints as text, and in a notebook as HTML."""

    @abstractmethod
    def panel(self) -> Panel:
        """Returns the content that is printed."""

    def __repr__(self) -> str:
        return self.panel().text()

    def _repr_html_(self) -> str:
        return self.panel().html()


class TabularResult(Result):
    """A result with rows."""

    @abstractmethod
    def _arrow(self) -> ArrowTable: ...

    @overload
    def to_df(self, kind: Literal["pandas"] = "pandas") -> pd.DataFrame: ...

    @overload
    def to_df(self, kind: Literal["polars"]) -> pl.DataFrame: ...

    @overload
    def to_df(self, kind: Literal["arrow"]) -> ArrowTable: ...

    def to_df(self, kind: FrameKind = "pandas") -> Any:
        """Returns the rows as a DataFrame of pandas or polars, or as an Arrow table.

        Raises ``ConfigError`` if the library is not installed.
        """
        arrow()
        if kind == "arrow":
            return self._arrow()
        if kind == "pandas":
            require_extra("pandas", _EXTRA, "A DataFrame of pandas")
            return self._arrow().to_pandas()
        if kind == "polars":
            return require_extra("polars", _EXTRA, "A DataFrame of polars").from_arrow(self._arrow())
        raise ConfigError(f"Unknown kind {kind!r}. Choose one of: pandas, polars, arrow")


def arrow() -> Any:
    """Returns the module ``pyarrow``, which all DataFrames are made with."""
    return require_extra("pyarrow", _EXTRA, "A DataFrame")


def chart_of(specification: dict[str, Any]) -> alt.TopLevelMixin:
    """Returns a Vega-Lite specification as a chart of Altair, which a notebook shows and ``save`` writes.

    In texts, ``<`` becomes ``＜``: Altair writes them into a script of the page, which ``</script>`` would end.
    """
    altair = require_extra("altair", _EXTRA, "A plot")
    chart: alt.TopLevelMixin = altair.Chart.from_dict(_harmless(specification))
    return chart


def _harmless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _harmless(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_harmless(each) for each in value]
    return visible(value).replace("<", "＜") if isinstance(value, str) else value

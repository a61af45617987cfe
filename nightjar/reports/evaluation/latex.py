r"""A report as a complete LaTeX document, with its tables and without the models' texts.

Works with pdfLaTeX, XeLaTeX and LuaLaTeX. No text reaches TeX as a command. A character that is not an ASCII letter or
digit is written by its name. A character beyond Latin-1 is written with ``\nightjarchar``, which shows the code point
if the font lacks the character.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nightjar.core.text import one_line
from nightjar.reports.evaluation.gathering import Report, RunReport
from nightjar.reports.evaluation.rendering import failures, findings, headings, measures, overview, score, spreads
from nightjar.reports.formats import visible

_NAMES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}", "-": r"{-}",
    "–": r"\textendash{}", "…": r"\textellipsis{}", "±": r"\textpm{}", "—": r"\textemdash{}", ",": "{,}", "?": "{?}",
    "!": "{!}", "[": "{[}", "]": "{]}",
}  # fmt: skip
"""Characters that TeX interprets, or that TeX would join with the next character."""
_ASCII, _LATIN = 0x7F, 0x100
_BREAKS = frozenset("/-_@ ")
_LONGEST_WORD = 16
_LONGEST = 300
_PREAMBLE = r"""\documentclass[a4paper,10pt]{article}
\usepackage{iftex}
\ifPDFTeX\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}\usepackage{textcomp}\else\usepackage{fontspec}\fi
\usepackage[landscape,margin=18mm]{geometry}
\usepackage{array,booktabs,longtable}
\newcommand{\nightjarchar}[2]{\ifPDFTeX[U+#1]\else\iffontchar\font"#1 #2\else[U+#1]\fi\fi}
\newcolumntype{P}[1]{>{\raggedright\arraybackslash}p{#1}}
\setlength{\parindent}{0pt}
\setlength{\LTleft}{0pt}
\setlength{\tabcolsep}{4pt}
\begin{document}
\section*{Evaluations}
\small"""


def render_latex(report: Report) -> str:
    alpha = report.runs[0].statistics.alpha if report.runs else 0.05
    parts = [table(headings(alpha), map(overview, report.runs), "P{38mm}P{44mm}" + "r" * 9)]
    for number, run in enumerate(report.runs, start=1):
        parts += _run(number, run)
    parts += [rf"{escape(one)}.\par" for one in report.left_out]
    said = f"Nightjar {report.nightjar_version}, {report.made_at:%Y-%m-%d %H:%M} UTC"
    return document([*parts, rf"\bigskip {escape(said)}"])


def document(parts: Iterable[str]) -> str:
    return "\n".join([_PREAMBLE, *parts, r"\end{document}", ""])


def escape(text: object) -> str:
    r"""Returns a text as TeX shows it, in one line that may break.

    >>> escape(r"\input{a}")
    '\\textbackslash{}input\\{a\\}'
    """
    shown = one_line(visible(str(text)).encode("utf-8", "replace").decode(), _LONGEST)
    since, parts = 0, []
    for character in shown:
        since = 0 if character in _BREAKS else since + 1
        parts.append(_character(character))
        if (character in _BREAKS and character != " ") or since >= _LONGEST_WORD:
            since = 0
            parts.append(r"\allowbreak{}")
    return "".join(parts)


def _character(character: str) -> str:
    if character in _NAMES:
        return _NAMES[character]
    code = ord(character)
    if code < _ASCII or (_ASCII + 0x22 <= code < _LATIN and code != 0xAD):  # noqa: PLR2004 - a soft hyphen
        return character
    return rf"\nightjarchar{{{code:04X}}}{{{character}}}"


def _run(number: int, run: RunReport) -> Iterator[str]:
    yield rf"\subsection*{{{number}. {escape(run.benchmark)}, {escape(run.model or 'no model')}}}"
    yield rf"Run {escape(run.run_id)}\par"
    yield table((), findings(run).items(), "P{30mm}P{210mm}")
    yield table(("Metric", "Value", "Interval"), measures(run), "P{80mm}rr")
    means = ((name, *score(mean), f"{mean.examples:,}") for name, mean in run.statistics.categories.items())
    yield table((f"By {run.by}", "Score", "Interval", "Examples"), means, "P{80mm}rrr")
    yield table(("A rollout takes", "p50", "p90", "p99"), spreads(run), "P{80mm}rrr")
    yield table(("Rollouts", "About", "Error", "The first"), failures(run), "rP{35mm}P{65mm}P{110mm}")
    endings = ((name, f"{count:,}") for name, count in run.wrong.items())
    yield table(("How wrong rollouts ended", "Rollouts"), endings, "P{80mm}r")


def table(names: Sequence[str], rows: Iterable[Sequence[object]], columns: str) -> str:
    body = [" & ".join(map(escape, row)) + r" \\" for row in rows]
    if not body:
        return ""
    head = [" & ".join(map(escape, names)) + r" \\", r"\midrule", r"\endhead"] if names else []
    lines = [rf"\begin{{longtable}}{{@{{}}{columns}@{{}}}}", r"\toprule", *head, *body, r"\bottomrule"]
    return "\n".join([*lines, r"\end{longtable}"])

"""Builds the documentation site: ``python docs/site/build.py [FOLDER]``, or ``make docs``.

Without a folder, the site is written into ``nightjar/site``, which ``nightjar docs`` opens and the wheel contains.

The pages of ``docs/`` and the generated pages of the reference are written into a temporary folder, where Zensical
builds the site. A broken link, or a page without an entry in the navigation, ends the build with an error.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import commands
import names
import relations
import routes

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = ROOT / "nightjar" / "site"
CONFIG = Path(__file__).with_name("zensical.toml")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:]+)\)")
_FILE_NAME = re.compile(r"[\w/-]+\.md")
_NEEDS = re.compile(r'^```(\w+) needs="([^"]+)"$', re.MULTILINE)
_UNUSED = ("objects.inv", "assets/stylesheets/classic")


def main(site: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_pages(folder / "pages")
        write_config(folder)
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", folder / CONFIG.name]
        if subprocess.run(command, cwd=folder, check=False).returncode != 0:
            sys.exit("The site was not built: see the problems above.")
        for name in _UNUSED:
            remove(folder / "site" / name)
        remove(site)
        shutil.move(folder / "site", site)
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    print(f"Wrote {site}: {len([*site.rglob('*.html')])} pages, {size / 1e6:.1f} MB")  # noqa: T201


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_pages(folder: Path) -> None:
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("site", "*.md", "*.ipynb"))
    shutil.copy(CONFIG.with_name("site.css"), folder)
    for page in DOCS.rglob("*.md"):
        write(folder / page.relative_to(DOCS), for_site(page, page.read_text("utf-8")))
    for notebook in DOCS.rglob("*.ipynb"):
        write(folder / notebook.relative_to(DOCS).with_suffix(".md"), text_of_notebook(notebook))
    for name, text in generated_pages():
        write(folder / "reference" / name, text)


def generated_pages() -> Iterator[tuple[str, str]]:
    """Yields the pages that are written from the code: name below ``reference``, and text."""
    yield from commands.pages()
    yield from names.pages()
    yield "sql.md", relations.page()
    yield "http.md", routes.page()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def for_site(page: Path, text: str) -> str:
    """Returns a page as the site shows it.

    Links to files outside ``docs/`` become text, names of files become titles, and blocks show what they need.
    """

    def replace_link(match: re.Match[str]) -> str:
        label, target = match.groups()
        path = (page.parent / target.partition("#")[0]).resolve()
        if not path.is_relative_to(DOCS):
            return label
        if _FILE_NAME.fullmatch(label) and path.suffix == ".md":
            label = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        return f"[{label}]({target.replace('.ipynb', '.md')})"

    return _NEEDS.sub(r'```\1 title="Needs \2"', _LINK.sub(replace_link, text))


def text_of_notebook(path: Path) -> str:
    """Returns the cells of a notebook as Markdown, without outputs."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in texts) + "\n"


def write_config(folder: Path) -> None:
    """Copies the configuration, with the generated pages in its navigation; checks that the navigation is complete."""
    text = CONFIG.read_text("utf-8")
    for name, pages in {"commands": commands.pages(), "python": names.pages()}.items():
        entries = ", ".join(f'"reference/{page}"' for page, _ in pages)
        text = text.replace(f'"reference/{name}/*"', entries)
    missing = [
        path.relative_to(folder / "pages").as_posix()
        for path in (folder / "pages").rglob("*.md")
        if f'"{path.relative_to(folder / "pages").as_posix()}"' not in text
    ]
    if missing:
        sys.exit(f"The navigation in {CONFIG.relative_to(ROOT)} has no entry for: {', '.join(sorted(missing))}")
    (folder / CONFIG.name).write_text(text, "utf-8")
    shutil.copy(CONFIG.with_name("docstrings.py"), folder)


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]) if sys.argv[1:] else SITE)

"""Builds images of benchmarks: writes a Dockerfile for a benchmark's file, and collects the files in the image."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nightjar
from nightjar.core.environment_id import listed_name
from nightjar.environments.packages.catalog import in_file, known_environment
from nightjar.environments.packages.package import benchmark_names, parse_module
from nightjar.environments.packages.provided import source_files
from nightjar.errors import ConfigError, ServiceError
from nightjar.sandboxes.providers import find_engine

BASE_IMAGE = "python:3.11-slim"
PORT = 9090

_LONGEST_NAME = 200
_STDERR = 2
_NO_TAG = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class BenchmarkImage:
    """The files of an image and the requirements to install; names and paths are relative to the benchmark's folder.

    ``requirements`` are requirements files; ``required`` are the requirements that the benchmark declares.
    """

    env_id: str
    files: Mapping[str, Path]
    base_image: str = BASE_IMAGE
    requirements: Mapping[str, Path] = field(default_factory=dict)
    required: Sequence[str] = ()

    @property
    def default_tag(self) -> str:
        name = self.env_id.rpartition(":")[2].removesuffix(".py")
        return f"nightjar-{_NO_TAG.sub('-', listed_name(name).lower()).strip('-')}:latest"

    def dockerfile(self, path: Path = Path("Dockerfile")) -> str:
        """Returns the Dockerfile for a path; a requirement that cannot be installed fails its build."""
        file = self.env_id.rpartition(":")[0] or self.env_id
        own = f"nightjar-evals=={nightjar.__version__}"
        install = ["pip", "install", "--no-cache-dir"]
        lines = [
            f"# Serves {self.env_id} over HTTP, or runs it. In the folder of {file}, run:",
            "#",
            f"#   docker build -f {shlex.quote(str(path))} -t {self.default_tag} .",
            f"#   docker run -p {PORT}:{PORT} {self.default_tag}",
            f"#   docker run {self.default_tag} eval run {self.env_id} -m MODEL -b URL",
            "",
            f"FROM {self.base_image}",
            "USER root",
            "WORKDIR /benchmark",
            f"RUN python -c 'import nightjar' 2>/dev/null || pip install --no-cache-dir {own}",
        ]
        for name in self.requirements:
            lines += [_line("COPY", [name, name]), _line("RUN", [*install, "--requirement", name])]
        if self.required:
            lines.append(_line("RUN", [*install, *self.required]))
        lines += [
            "RUN id nightjar >/dev/null 2>&1 || useradd --create-home --uid 1000 nightjar",
            "RUN chown nightjar /benchmark",
            *(_line("COPY", [name, name]) for name in self.files),
            "USER nightjar",
            "ENV PYTHONUNBUFFERED=1",
            f"EXPOSE {PORT}",
            _line("ENTRYPOINT", ["nightjar"]),
            _line("CMD", ["serve", self.env_id, "--port", str(PORT)]),
            "",
        ]
        return "\n".join(lines)

    def build(self, tag: str) -> None:
        """Builds the image; the engine's output goes to stderr."""
        engine = find_engine()
        with tempfile.TemporaryDirectory(prefix="nightjar-image-") as place:
            context = Path(place)
            for name, path in {**self.files, **self.requirements}.items():
                (context / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, context / name)
            (context / "Dockerfile").write_text(self.dockerfile(), encoding="utf-8")
            _run([engine, "build", "--tag", tag, "--file", str(context / "Dockerfile"), place], f"The image {tag!r}")

    def push(self, tag: str) -> None:
        _run([find_engine(), "push", tag], f"The push of {tag!r}")


def image_of(
    text: str, base_image: str = BASE_IMAGE, requirements: Path | None = None, include: Sequence[Path] = ()
) -> BenchmarkImage:
    """Returns the image of a benchmark in a file, without running its code.

    The image contains the file, the modules of its folder that it imports, and files of the folder whose names are
    strings in this code.
    """
    found = in_file(text)
    if found is None:
        raise ConfigError(f"An image needs a file: path.py or path.py:name (found {text!r})")
    if not base_image or base_image.split() != [base_image]:
        raise ConfigError(f"--base-image must be the name of an image (found {base_image!r})")
    path, _, name = text.rpartition(":") if not text.endswith(".py") else (text, "", "")
    module, names = Path(path), benchmark_names(Path(path))
    if name and names and name not in names:
        raise ConfigError(f"{path} has no benchmark {name!r}. Choose one of: {', '.join(names)}")
    if not name and len(names) > 1:
        raise ConfigError(f"{path} has several benchmarks: {', '.join(names)}. Name one: {path}:{names[0]}")
    package = known_environment(found.env_id, found.folder)
    files = dict(source_files(package)) if package else {}
    files = {module.name: module, **{key: file for key, file in files.items() if file.resolve() != module.resolve()}}
    for file in (*_named_files(files.values(), module.parent), *include):
        files[_inside(file, module.parent)] = file
    installed = {_inside(file, module.parent): file for file in ([requirements] if requirements else [])}
    required = [text for file in files.values() if file.suffix == ".py" for text in _required(file)]
    return BenchmarkImage(f"{module.name}:{name}" if name else module.name, files, base_image, installed, required)


def _named_files(sources: Iterable[Path], folder: Path) -> list[Path]:
    found: dict[Path, None] = {}
    for source in sources:
        for node in ast.walk(parse_module(source) or ast.Module([], [])) if source.suffix == ".py" else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _may_name(node.value):
                path = folder / node.value
                if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                    found[path] = None
    return list(found)


def _may_name(text: str) -> bool:
    """Returns whether a string may name a file; names with a leading dot, such as ``.env``, are private."""
    parts = text.split("/")
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable() and not any(part.startswith(".") for part in parts)


def _inside(file: Path, folder: Path) -> str:
    if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{str(file)!r} is not a file in or below {str(folder)!r}, the benchmark's folder")
    return file.resolve().relative_to(folder.resolve()).as_posix()


def _required(file: Path) -> list[str]:
    calls = (node for node in ast.walk(parse_module(file) or ast.Module([], [])) if isinstance(node, ast.Call))
    named = (word.value for call in calls for word in call.keywords if word.arg == "requirements")
    listed = (each for value in named if isinstance(value, ast.List | ast.Tuple) for each in value.elts)
    return [each.value for each in listed if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _line(word: str, arguments: Sequence[str]) -> str:
    return f"{word} {json.dumps(list(arguments))}"


def _run(command: list[str], what: str) -> None:
    code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=_STDERR, check=False).returncode  # noqa: S603
    if code:
        raise ServiceError(f"{what} failed: {Path(command[0]).name} {command[1]} ended with code {code}, see above")

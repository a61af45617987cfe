"""``nightjar package``: builds a container image that serves a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.options import argument, option
from nightjar.cli.terminal import echo
from nightjar.compat.nemo.serving.image import BASE_IMAGE, PORT, image_of
from nightjar.errors import ConfigError, SandboxError


def package(
    file: Annotated[str, argument("The benchmark's file, or FILE.py:NAME if it defines several.", metavar="FILE.py")],
    tag: Annotated[str | None, option("Name of the image.", "--tag", "-t", metavar="TAG")] = None,
    base_image: Annotated[str, option("Base image; it may already contain Nightjar.", metavar="IMAGE")] = BASE_IMAGE,
    requirements: Annotated[
        Path | None, option("File of requirements to install in the image.", metavar="FILE")
    ] = None,
    include: Annotated[
        list[Path] | None, option("Another file that the benchmark needs; repeatable.", metavar="FILE")
    ] = None,
    output: Annotated[
        Path | None, option("Only write the Dockerfile, to this path.", "--output", "-o", metavar="PATH")
    ] = None,
    push: Annotated[bool, option("Also push the image.", "--push")] = False,
) -> None:
    """Build an image that serves or runs the benchmark in a file, or only write the Dockerfile.

    The image contains the file, the modules in the same folder that the file imports, and files in that folder that the
    code names, such as 'rows.csv'. Docker or podman builds the image; if neither responds, the Dockerfile is printed.
    If a requirement cannot be installed, the build fails.

    Examples: nightjar package bench.py -t team/bench:1 --push | nightjar package bench.py:sums -o Dockerfile
    """
    if output is not None and (push or tag):
        raise typer.BadParameter("-o writes only the Dockerfile, and excludes --tag and --push.")
    image = image_of(file, base_image, requirements, include or [])
    if output is not None:
        _write(output, image.dockerfile(output))
        echo(f"Wrote {output}: {', '.join(image.files)}")
        echo(f"Build it: docker build -f {output} -t {image.default_tag} {Path(file).parent}", err=True)
        return
    name = tag or image.default_tag
    try:
        image.build(name)
    except SandboxError:
        echo(image.dockerfile().rstrip())
        raise
    if push:
        image.push(name)
    echo(f"{'Pushed' if push else 'Built'} {name}")
    echo(f"Serve it: docker run -p {PORT}:{PORT} {name}", err=True)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output: cannot write {str(path)!r}: {error.strerror}") from error

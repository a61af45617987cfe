"""``python -m nightjar`` is ``nightjar``."""

from nightjar.cli import main

main()

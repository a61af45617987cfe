"""``python -m nightjar`` is ``nightjar``, which does not import from the folder where it is typed."""

import sys

if not sys.flags.safe_path:
    sys.path.pop(0)

from nightjar.cli import main

main()

"""Makes the worker of the tests' services fork its spare processes, instead of importing Prefect (4 s) for each.

Python imports this file at its start, because ``Services`` puts its folder into ``PYTHONPATH``. In a worker it replaces
``anyio.open_process`` for spare processes; a parent process with these imports, ``parent.py``, starts with the first.
"""

import sys

if "nightjar.hosting.worker" in sys.orig_argv:
    import anyio
    from forking_parent import ForkingParent

    anyio.open_process = ForkingParent(anyio.open_process).open_process

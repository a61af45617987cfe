"""Lets the tests here import ``damage``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

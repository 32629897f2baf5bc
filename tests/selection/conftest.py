"""Small models of every family, from the decoding tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "decoding"))

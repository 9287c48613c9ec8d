"""Where tests look for real data sets and networks."""

import os
from pathlib import Path

DATA = Path(os.environ.get("GRADSLIDE_DATA", Path(__file__).parents[3] / "shared" / "data"))

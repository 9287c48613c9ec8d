"""`gradslide.graphs.mixing` by its public path."""

import sys

from gradslide.graphs.mixing import *  # noqa: F403

sys.modules[__name__] = sys.modules["gradslide.graphs.mixing"]

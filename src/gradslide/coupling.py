"""`gradslide.network.coupling` by its public path."""

import sys

from gradslide.network.coupling import *  # noqa: F403

sys.modules[__name__] = sys.modules["gradslide.network.coupling"]

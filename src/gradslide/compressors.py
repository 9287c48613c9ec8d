"""`gradslide.network.compressors` by its public path."""

import sys

from gradslide.network.compressors import *  # noqa: F403

sys.modules[__name__] = sys.modules["gradslide.network.compressors"]

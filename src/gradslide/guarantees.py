"""`gradslide.theory.guarantees` by its public path."""

import sys

from gradslide.theory.guarantees import *  # noqa: F403

sys.modules[__name__] = sys.modules["gradslide.theory.guarantees"]

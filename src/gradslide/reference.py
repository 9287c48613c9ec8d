"""`gradslide.theory.reference` by its public path."""

import sys

from gradslide.theory.reference import *  # noqa: F403

sys.modules[__name__] = sys.modules["gradslide.theory.reference"]

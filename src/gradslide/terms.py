"""`gradslide.problems.terms` by its public path."""

import sys

from gradslide.problems.terms import *  # noqa: F403

sys.modules[__name__] = sys.modules["gradslide.problems.terms"]

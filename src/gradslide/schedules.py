"""`gradslide.theory.schedules` by its public path."""

import sys

from gradslide.theory.schedules import *  # noqa: F403

sys.modules[__name__] = sys.modules["gradslide.theory.schedules"]

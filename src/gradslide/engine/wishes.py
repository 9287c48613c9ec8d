"""What a process may wish of a run that is everybody's, the most urgent last."""

from enum import IntEnum


class Wish(IntEnum):
    """SAVE: write checkpoints. INTERRUPT: Ctrl-C. GRADIENTS, TIME: their limits, which not all processes reach alike.
    STOP: a callback. DIVERGED: values overflowed."""

    NONE = 0
    SAVE = 1
    INTERRUPT = 2
    GRADIENTS = 3
    TIME = 4
    STOP = 5
    DIVERGED = 6

"""What a process may wish of a run that is everybody's, the most urgent last."""

from enum import IntEnum


class Wish(IntEnum):
    """SAVE: write checkpoints. INTERRUPT: Ctrl-C. STOP: a callback. GRADIENTS, TIME: their limits, which not all
    processes reach alike. DIVERGED: values overflowed."""

    NONE = 0
    SAVE = 1
    INTERRUPT = 2
    STOP = 3
    GRADIENTS = 4
    TIME = 5
    DIVERGED = 6

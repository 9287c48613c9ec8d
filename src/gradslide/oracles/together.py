"""Samples that do not come in one process must be missed in all of them, or the others would wait for it for ever."""

from collections.abc import Callable
from typing import TypeVar

from gradslide._support.errors import StreamEnded, StreamError, WaitEnded

_Samples = TypeVar("_Samples")
Trouble = StreamEnded | WaitEnded | StreamError
# What went wrong, in front of the number of the agent.
_ENDED, _WAITED, _FAILED = (kind << 40 for kind in (1, 2, 3))


def together(draw: Callable[[], _Samples], settle: Callable[[int], int]) -> _Samples:
    """What `draw` gives; or what kept samples from coming, here or in another process."""
    troubles: list[Trouble] = []
    try:
        samples = draw()
    except (StreamEnded, WaitEnded, StreamError) as error:
        troubles.append(error)
    own = _code(troubles)
    worst = settle(own)
    # All raise alike, whatever else happened here: what follows depends on it.
    if troubles and own >> 40 == worst >> 40:
        # Popped: an error and the frames that name it would keep each other, and the streams, alive.
        raise troubles.pop()
    kind, agent = worst >> 40 << 40, worst & ((1 << 40) - 1)
    if kind == _ENDED:
        raise StreamEnded(agent)
    if kind == _WAITED:
        raise WaitEnded
    if kind == _FAILED:
        raise StreamError(agent, "it failed in the process where that agent lives")
    return samples


def _code(troubles: list[Trouble]) -> int:
    for trouble in troubles:
        if isinstance(trouble, WaitEnded):
            return _WAITED
        return (_ENDED if isinstance(trouble, StreamEnded) else _FAILED) + (trouble.agent or 0)
    return 0

"""Names that members of networks had until 0.1, which still work, with a warning."""

import warnings
from typing import TYPE_CHECKING, Any

# Old name -> where it is now, from the network.
_RENAMED = {
    "is_together": "is_local",
    "at_once": "batch",
    "post": "start_reduce",
    "arrived": "completed",
    "control_rounds": "costs.control_rounds",
    "exchange_size": "costs.exchange_floats",
    "post_size": "costs.reduce_floats",
    "survey_rounds": "costs.survey_rounds",
    "survey_size": "costs.survey_floats",
    "norm_rounds": "costs.norm_rounds",
    "observe": "session.observe",
    "settle": "session.all_reduce_signal",
    "sees_all": "session.sees_all",
    "gather": "session.gather",
    "aside": "session.uncounted",
    "begin": "session.begin",
    "memory": "session.checkpoint",
    "recall": "session.resume",
    "saved": "session.checkpointed",
}


class RenamedMembers:
    """Gives networks the names that their members had before."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "place":
                _warn("place", "session.rank and session.size")
                return self.session.rank, self.session.size
            if name not in _RENAMED:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            _warn(name, _RENAMED[name])
            found = self
            for part in _RENAMED[name].split("."):
                found = getattr(found, part)
            return found


def _warn(old: str, new: str) -> None:
    warnings.warn(f"network.{old} is deprecated: use network.{new}", DeprecationWarning, stacklevel=3)

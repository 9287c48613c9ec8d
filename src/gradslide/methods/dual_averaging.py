"""DualAveraging: to be written."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DualAveraging:
    """To be written."""

"""EXTRA: to be written."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EXTRA:
    """To be written."""

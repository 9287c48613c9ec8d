"""SDCS: to be written."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SDCS:
    """To be written."""

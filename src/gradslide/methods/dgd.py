"""DGD: to be written."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DGD:
    """To be written."""

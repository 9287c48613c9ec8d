"""OPAPC: to be written."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OPAPC:
    """To be written."""

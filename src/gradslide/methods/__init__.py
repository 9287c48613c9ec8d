"""One file per method; each reads like its paper."""

from gradslide.methods.base import Context, Method
from gradslide.methods.pds import PDS

__all__ = ["PDS", "Context", "Method"]

"""One file per method; each reads like its paper."""

from gradslide.methods.base import Context, Method
from gradslide.methods.condat_vu import CondatVu
from gradslide.methods.pds import PDS
from gradslide.methods.spds import SPDS

__all__ = ["PDS", "SPDS", "CondatVu", "Context", "Method"]

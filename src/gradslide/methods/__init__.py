"""One file per method; each reads like its paper."""

from gradslide.methods.accelerated_tracking import AcceleratedTracking
from gradslide.methods.admm import ADMM
from gradslide.methods.auto import AutoPDS
from gradslide.methods.base import Context, Method
from gradslide.methods.choco_sgd import ChocoSGD
from gradslide.methods.condat_vu import CondatVu
from gradslide.methods.dcs import DCS
from gradslide.methods.dgd import DGD
from gradslide.methods.dlm import DLM
from gradslide.methods.dsgd import DSGD
from gradslide.methods.dual_averaging import DualAveraging
from gradslide.methods.extra import EXTRA
from gradslide.methods.gradient_tracking import GradientTracking
from gradslide.methods.nids import NIDS
from gradslide.methods.opapc import OPAPC
from gradslide.methods.pds import PDS
from gradslide.methods.sdcs import SDCS
from gradslide.methods.spds import SPDS

__all__ = [
    "ADMM",
    "DCS",
    "DGD",
    "DLM",
    "DSGD",
    "EXTRA",
    "NIDS",
    "OPAPC",
    "PDS",
    "SDCS",
    "SPDS",
    "AcceleratedTracking",
    "AutoPDS",
    "ChocoSGD",
    "CondatVu",
    "Context",
    "DualAveraging",
    "GradientTracking",
    "Method",
]

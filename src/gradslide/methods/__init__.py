"""Methods: one file each, which reads like its paper.

`solve` runs them. They never stop, print, time or measure. `gossip` is the adaptive mode
(`AutoPDS`), `baselines` holds published methods to compare with.
"""

from gradslide.methods.auto import Auto
from gradslide.methods.base import Context, Method
from gradslide.methods.baselines.accelerated_tracking import AcceleratedTracking
from gradslide.methods.baselines.admm import ADMM
from gradslide.methods.baselines.choco_sgd import ChocoSGD
from gradslide.methods.baselines.condat_vu import CondatVu
from gradslide.methods.baselines.dcs import DCS
from gradslide.methods.baselines.dgd import DGD
from gradslide.methods.baselines.dlm import DLM
from gradslide.methods.baselines.dsgd import DSGD
from gradslide.methods.baselines.dual_averaging import DualAveraging
from gradslide.methods.baselines.extra import EXTRA
from gradslide.methods.baselines.gradient_tracking import GradientTracking
from gradslide.methods.baselines.nids import NIDS
from gradslide.methods.baselines.opapc import OPAPC
from gradslide.methods.baselines.sdcs import SDCS
from gradslide.methods.gossip.auto_pds import AutoPDS
from gradslide.methods.lbfgs import LBFGS
from gradslide.methods.newton import Newton
from gradslide.methods.pds import PDS
from gradslide.methods.spds import SPDS

__all__ = [
    "ADMM",
    "DCS",
    "DGD",
    "DLM",
    "DSGD",
    "EXTRA",
    "LBFGS",
    "NIDS",
    "OPAPC",
    "PDS",
    "SDCS",
    "SPDS",
    "AcceleratedTracking",
    "Auto",
    "AutoPDS",
    "ChocoSGD",
    "CondatVu",
    "Context",
    "DualAveraging",
    "GradientTracking",
    "Method",
    "Newton",
]

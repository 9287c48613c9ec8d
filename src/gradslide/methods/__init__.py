"""Methods: one file each, which reads like its paper.

`solve` runs them. They never stop, print, time or measure. `gossip` is the adaptive mode
(`AutoPDS`), `baselines` holds published methods to compare with.
"""

from typing import TYPE_CHECKING

from gradslide._support.lazy import lazy_names

if TYPE_CHECKING:
    from gradslide.methods.auto import Auto as Auto
    from gradslide.methods.base import Context as Context
    from gradslide.methods.base import Method as Method
    from gradslide.methods.baselines.accelerated_tracking import AcceleratedTracking as AcceleratedTracking
    from gradslide.methods.baselines.admm import ADMM as ADMM
    from gradslide.methods.baselines.choco_sgd import ChocoSGD as ChocoSGD
    from gradslide.methods.baselines.condat_vu import CondatVu as CondatVu
    from gradslide.methods.baselines.dcs import DCS as DCS
    from gradslide.methods.baselines.dgd import DGD as DGD
    from gradslide.methods.baselines.dlm import DLM as DLM
    from gradslide.methods.baselines.dsgd import DSGD as DSGD
    from gradslide.methods.baselines.dual_averaging import DualAveraging as DualAveraging
    from gradslide.methods.baselines.extra import EXTRA as EXTRA
    from gradslide.methods.baselines.gradient_tracking import GradientTracking as GradientTracking
    from gradslide.methods.baselines.nids import NIDS as NIDS
    from gradslide.methods.baselines.opapc import OPAPC as OPAPC
    from gradslide.methods.baselines.sdcs import SDCS as SDCS
    from gradslide.methods.gossip.auto_pds import AutoPDS as AutoPDS
    from gradslide.methods.lbfgs import LBFGS as LBFGS
    from gradslide.methods.newton import Newton as Newton
    from gradslide.methods.pds import PDS as PDS
    from gradslide.methods.spds import SPDS as SPDS
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "auto": "Auto",
            "base": "Context Method",
            "baselines.accelerated_tracking": "AcceleratedTracking",
            "baselines.admm": "ADMM",
            "baselines.choco_sgd": "ChocoSGD",
            "baselines.condat_vu": "CondatVu",
            "baselines.dcs": "DCS",
            "baselines.dgd": "DGD",
            "baselines.dlm": "DLM",
            "baselines.dsgd": "DSGD",
            "baselines.dual_averaging": "DualAveraging",
            "baselines.extra": "EXTRA",
            "baselines.gradient_tracking": "GradientTracking",
            "baselines.nids": "NIDS",
            "baselines.opapc": "OPAPC",
            "baselines.sdcs": "SDCS",
            "gossip.auto_pds": "AutoPDS",
            "lbfgs": "LBFGS",
            "newton": "Newton",
            "pds": "PDS",
            "spds": "SPDS",
        },
    )

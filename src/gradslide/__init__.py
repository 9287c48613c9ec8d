"""Convex optimization by many agents on a network without a centre."""

from typing import TYPE_CHECKING

from gradslide._support.lazy import lazy_names

if TYPE_CHECKING:
    from gradslide import data as data
    from gradslide import domains as domains
    from gradslide import losses as losses
    from gradslide import network as network
    from gradslide import oracles as oracles
    from gradslide._support.errors import InputError as InputError
    from gradslide._support.errors import StreamError as StreamError
    from gradslide._version import __version__ as __version__
    from gradslide.domains.penalties import L1 as L1
    from gradslide.domains.penalties import ElasticNet as ElasticNet
    from gradslide.domains.penalties import GroupL1 as GroupL1
    from gradslide.engine.solve import solve as solve
    from gradslide.engine.stopping import Relative as Relative
    from gradslide.engine.stopping import Stop as Stop
    from gradslide.fitting.sites import fit as fit
    from gradslide.graphs import mixing as mixing
    from gradslide.graphs.graph import Graph as Graph
    from gradslide.interfaces import from_cvxpy as from_cvxpy
    from gradslide.interfaces import from_linprog as from_linprog
    from gradslide.interfaces import from_qps as from_qps
    from gradslide.interfaces import from_scipy as from_scipy
    from gradslide.losses.check import check_loss as check_loss
    from gradslide.methods import ADMM as ADMM
    from gradslide.methods import DCS as DCS
    from gradslide.methods import DGD as DGD
    from gradslide.methods import DLM as DLM
    from gradslide.methods import DSGD as DSGD
    from gradslide.methods import EXTRA as EXTRA
    from gradslide.methods import LBFGS as LBFGS
    from gradslide.methods import NIDS as NIDS
    from gradslide.methods import OPAPC as OPAPC
    from gradslide.methods import PDS as PDS
    from gradslide.methods import SDCS as SDCS
    from gradslide.methods import SPDS as SPDS
    from gradslide.methods import AcceleratedTracking as AcceleratedTracking
    from gradslide.methods import Auto as Auto
    from gradslide.methods import AutoPDS as AutoPDS
    from gradslide.methods import ChocoSGD as ChocoSGD
    from gradslide.methods import CondatVu as CondatVu
    from gradslide.methods import Context as Context
    from gradslide.methods import DualAveraging as DualAveraging
    from gradslide.methods import GradientTracking as GradientTracking
    from gradslide.methods import Method as Method
    from gradslide.methods import Newton as Newton
    from gradslide.network import compressors as compressors
    from gradslide.network import coupling as coupling
    from gradslide.network.clock import Clock as Clock
    from gradslide.problems import terms as terms
    from gradslide.problems.coupled import Coupled as Coupled
    from gradslide.problems.problem import Problem as Problem
    from gradslide.problems.saddle import LinearlyConstrained as LinearlyConstrained
    from gradslide.problems.saddle import Saddle as Saddle
    from gradslide.regression import Regression as Regression
    from gradslide.results.certificate import KKT as KKT
    from gradslide.results.certificate import Certificate as Certificate
    from gradslide.results.certificate import SaddleKKT as SaddleKKT
    from gradslide.results.costs import Costs as Costs
    from gradslide.results.history import History as History
    from gradslide.results.history import Record as Record
    from gradslide.results.solution import Solution as Solution
    from gradslide.results.solution import load as load
    from gradslide.results.status import Status as Status
    from gradslide.theory import guarantees as guarantees
    from gradslide.theory import reference as reference
    from gradslide.theory import schedules as schedules
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "": "data domains losses network oracles",
            "_support.errors": "InputError StreamError",
            "_version": "__version__",
            "domains.penalties": "L1 ElasticNet GroupL1",
            "engine.solve": "solve",
            "engine.stopping": "Relative Stop",
            "fitting.sites": "fit",
            "graphs": "mixing",
            "graphs.graph": "Graph",
            "interfaces": "from_cvxpy from_linprog from_qps from_scipy",
            "losses.check": "check_loss",
            "methods": (
                "ADMM DCS DGD DLM DSGD EXTRA LBFGS NIDS OPAPC PDS SDCS SPDS AcceleratedTracking Auto AutoPDS ChocoSGD "
                "CondatVu Context DualAveraging GradientTracking Method Newton"
            ),
            "network": "compressors coupling",
            "network.clock": "Clock",
            "problems": "terms",
            "problems.coupled": "Coupled",
            "problems.problem": "Problem",
            "problems.saddle": "LinearlyConstrained Saddle",
            "regression": "Regression",
            "results.certificate": "KKT Certificate SaddleKKT",
            "results.costs": "Costs",
            "results.history": "History Record",
            "results.solution": "Solution load",
            "results.status": "Status",
            "theory": "guarantees reference schedules",
        },
    )

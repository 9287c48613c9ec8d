"""Convex optimization by many agents on a network without a centre."""

import sys as _sys

from gradslide import data, domains, losses, network, oracles
from gradslide._support.errors import InputError, StreamError
from gradslide._version import __version__
from gradslide.domains.penalties import L1, ElasticNet, GroupL1
from gradslide.engine.solve import solve
from gradslide.engine.stopping import Relative, Stop
from gradslide.graphs import mixing
from gradslide.graphs.graph import Graph
from gradslide.losses.check import check_loss
from gradslide.methods import (
    ADMM,
    DCS,
    DGD,
    DLM,
    DSGD,
    EXTRA,
    LBFGS,
    NIDS,
    OPAPC,
    PDS,
    SDCS,
    SPDS,
    AcceleratedTracking,
    Auto,
    AutoPDS,
    ChocoSGD,
    CondatVu,
    Context,
    DualAveraging,
    GradientTracking,
    Method,
    Newton,
)
from gradslide.network import compressors, coupling
from gradslide.network.clock import Clock
from gradslide.problems import terms
from gradslide.problems.problem import Problem
from gradslide.problems.saddle import LinearlyConstrained, Saddle
from gradslide.results.certificate import KKT, Certificate
from gradslide.results.costs import Costs
from gradslide.results.history import History, Record
from gradslide.results.solution import Solution, load
from gradslide.results.status import Status
from gradslide.theory import guarantees, reference, schedules

__all__ = [
    "ADMM",
    "DCS",
    "DGD",
    "DLM",
    "DSGD",
    "EXTRA",
    "KKT",
    "L1",
    "LBFGS",
    "NIDS",
    "OPAPC",
    "PDS",
    "SDCS",
    "SPDS",
    "AcceleratedTracking",
    "Auto",
    "AutoPDS",
    "Certificate",
    "ChocoSGD",
    "Clock",
    "CondatVu",
    "Context",
    "Costs",
    "DualAveraging",
    "ElasticNet",
    "GradientTracking",
    "Graph",
    "GroupL1",
    "History",
    "InputError",
    "LinearlyConstrained",
    "Method",
    "Newton",
    "Problem",
    "Record",
    "Relative",
    "Saddle",
    "Solution",
    "Status",
    "Stop",
    "StreamError",
    "__version__",
    "check_loss",
    "compressors",
    "coupling",
    "data",
    "domains",
    "guarantees",
    "load",
    "losses",
    "mixing",
    "network",
    "oracles",
    "reference",
    "schedules",
    "solve",
    "terms",
]

# Modules of the reference can be imported by their public path, too: `from gradslide.schedules import theorem_1`.
for _module in (compressors, coupling, guarantees, mixing, reference, schedules, terms):
    _sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module


def __dir__() -> list[str]:
    """The public names alone."""
    return [*__all__, "__version__"]

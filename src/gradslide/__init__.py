"""Convex optimization by many agents on a network without a centre."""

from gradslide import (
    compressors,
    coupling,
    data,
    domains,
    guarantees,
    losses,
    mixing,
    network,
    oracles,
    reference,
    schedules,
    terms,
)
from gradslide._version import __version__
from gradslide.certificate import KKT, Certificate
from gradslide.clock import Clock
from gradslide.costs import Costs
from gradslide.errors import InputError, StreamError
from gradslide.graph import Graph
from gradslide.history import History, Record
from gradslide.methods import (
    ADMM,
    DCS,
    DGD,
    DLM,
    DSGD,
    EXTRA,
    NIDS,
    OPAPC,
    PDS,
    SDCS,
    SPDS,
    AcceleratedTracking,
    AutoPDS,
    ChocoSGD,
    CondatVu,
    Context,
    DualAveraging,
    GradientTracking,
)
from gradslide.penalties import L1, ElasticNet, GroupL1
from gradslide.problem import Problem
from gradslide.saddle import LinearlyConstrained, Saddle
from gradslide.solution import Solution, load
from gradslide.solve import solve
from gradslide.status import Status
from gradslide.stop import Relative, Stop

__all__ = [
    "ADMM",
    "DCS",
    "DGD",
    "DLM",
    "DSGD",
    "EXTRA",
    "KKT",
    "L1",
    "NIDS",
    "OPAPC",
    "PDS",
    "SDCS",
    "SPDS",
    "AcceleratedTracking",
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
    "Problem",
    "Record",
    "Relative",
    "Saddle",
    "Solution",
    "Status",
    "Stop",
    "StreamError",
    "__version__",
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


def __dir__() -> list[str]:
    """The public names alone."""
    return [*__all__, "__version__"]

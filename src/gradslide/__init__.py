"""Convex optimization by many agents on a network without a centre."""

from gradslide import coupling, data, domains, guarantees, losses, network, oracles, reference, schedules, terms
from gradslide._version import __version__
from gradslide.certificate import Certificate
from gradslide.costs import Costs
from gradslide.errors import InputError, StreamError
from gradslide.graph import Graph
from gradslide.history import History, Record
from gradslide.methods import PDS, SPDS, CondatVu, Context
from gradslide.penalties import L1, ElasticNet, GroupL1
from gradslide.problem import Problem
from gradslide.saddle import LinearlyConstrained, Saddle
from gradslide.solution import Solution, load
from gradslide.solve import solve
from gradslide.status import Status
from gradslide.stop import Relative, Stop

__all__ = [
    "L1",
    "PDS",
    "SPDS",
    "Certificate",
    "CondatVu",
    "Context",
    "Costs",
    "ElasticNet",
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
    "coupling",
    "data",
    "domains",
    "guarantees",
    "load",
    "losses",
    "network",
    "oracles",
    "reference",
    "schedules",
    "solve",
    "terms",
]

"""Domains (X, nu, r): the set an agent's x lies in, the function that measures distances, and a penalty."""

from gradslide.domains.affine import Affine, Halfspace
from gradslide.domains.balls import L1Ball, L2Ball
from gradslide.domains.base import Domain
from gradslide.domains.box import Box, NonNegative
from gradslide.domains.entropy import EntropySimplex
from gradslide.domains.euclidean import Euclidean
from gradslide.domains.free import Free
from gradslide.domains.group_ball import GroupBall
from gradslide.domains.per_agent import PerAgent
from gradslide.domains.simplex import Simplex

__all__ = [
    "Affine",
    "Box",
    "Domain",
    "EntropySimplex",
    "Euclidean",
    "Free",
    "GroupBall",
    "Halfspace",
    "L1Ball",
    "L2Ball",
    "NonNegative",
    "PerAgent",
    "Simplex",
]

"""Domains (X, nu, r): a closed convex set, a distance-generating function and a penalty.

One file per set, vectorized over the agents: projection, prox step, minimum of a linear function.
Penalties belong here, because a domain evaluates them inside its prox step. What is minimized over
a domain belongs in `losses`, and dual terms h of saddle point problems in `problems`.
"""

from gradslide.domains.affine import Affine, Halfspace
from gradslide.domains.balls import L1Ball, L2Ball
from gradslide.domains.base import Domain
from gradslide.domains.box import Box, NonNegative
from gradslide.domains.entropy import EntropySimplex
from gradslide.domains.euclidean import Euclidean
from gradslide.domains.free import Free
from gradslide.domains.group_ball import GroupBall
from gradslide.domains.parameters import Fit
from gradslide.domains.per_agent import PerAgent
from gradslide.domains.simplex import Simplex

__all__ = [
    "Affine",
    "Box",
    "Domain",
    "EntropySimplex",
    "Euclidean",
    "Fit",
    "Free",
    "GroupBall",
    "Halfspace",
    "L1Ball",
    "L2Ball",
    "NonNegative",
    "PerAgent",
    "Simplex",
]

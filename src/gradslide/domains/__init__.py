"""Domains (X, nu, r): a closed convex set, a distance-generating function and a penalty.

One file per set, vectorized over the agents: projection, prox step, minimum of a linear function.
Penalties belong here, because a domain evaluates them inside its prox step. What is minimized over
a domain belongs in `losses`, and dual terms h of saddle point problems in `problems`.
"""

from typing import TYPE_CHECKING

from gradslide._support.lazy import lazy_names

if TYPE_CHECKING:
    from gradslide.domains.affine import Affine as Affine
    from gradslide.domains.affine import Halfspace as Halfspace
    from gradslide.domains.balls import L1Ball as L1Ball
    from gradslide.domains.balls import L2Ball as L2Ball
    from gradslide.domains.base import Domain as Domain
    from gradslide.domains.box import Box as Box
    from gradslide.domains.box import NonNegative as NonNegative
    from gradslide.domains.entropy import EntropySimplex as EntropySimplex
    from gradslide.domains.euclidean import Euclidean as Euclidean
    from gradslide.domains.free import Free as Free
    from gradslide.domains.group_ball import GroupBall as GroupBall
    from gradslide.domains.parameters import Fit as Fit
    from gradslide.domains.per_agent import PerAgent as PerAgent
    from gradslide.domains.polyhedron import Polyhedron as Polyhedron
    from gradslide.domains.simplex import Simplex as Simplex
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "affine": "Affine Halfspace",
            "balls": "L1Ball L2Ball",
            "base": "Domain",
            "box": "Box NonNegative",
            "entropy": "EntropySimplex",
            "euclidean": "Euclidean",
            "free": "Free",
            "group_ball": "GroupBall",
            "parameters": "Fit",
            "per_agent": "PerAgent",
            "polyhedron": "Polyhedron",
            "simplex": "Simplex",
        },
    )

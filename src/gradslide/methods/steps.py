"""Gradients of the smooth part, prox steps and checks, shared by first-order methods."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.errors import require, require_number
from gradslide._support.types import Array
from gradslide.domains.euclidean import Euclidean
from gradslide.graphs.mixing import MIXINGS, Mixing, require_mixing
from gradslide.methods import defaults
from gradslide.methods.base import Context, Method, StateT
from gradslide.network.collectives import reduce_constant

# The share of the longest step with a proof that is used by default.
_SHARE = 0.95
# Differences up to this count as rounding, in single precision too.
_ROUNDING = 1e-5


@dataclass(frozen=True, kw_only=True)
class GradientSteps(Method[StateT]):
    """Methods that alternate gradient steps and averages: step_size, L and W."""

    tuned: ClassVar[str] = "step_size"

    step_size: float | None = None
    L: float | None = None
    mixing: str = "metropolis"

    def __post_init__(self) -> None:
        check_positive(self, "step_size", "L")
        require_mixing(self.mixing)

    def prepare(self, context: Context) -> Mixing:
        """Return W; "laplacian" needs a bound on lmax, which agents may have to agree on."""
        norm = {"norm": context.network.norm_bound()} if self.mixing == "laplacian" else {}
        return MIXINGS[self.mixing](context.network.graph, **norm)

    def step_over_L(self, context: Context) -> float:
        """Return the given step, else 1/L."""
        return 1 / smoothness(context, self.L) if self.step_size is None else self.step_size

    def step_over_W(self, context: Context) -> float:
        """Return the given step, else nearly (1 + lmin(W))/L, the longest for W x - a g(x)."""
        if self.step_size is not None:
            return self.step_size
        return float(_SHARE * (1 + mixing_matrix(context).least) / smoothness(context, self.L))


def mixing_matrix(context: Context) -> Mixing:
    """Return W, which `GradientSteps.prepare` has made."""
    return cast(Mixing, context.prepared)


def gradient(context: Context, x: Array) -> Array:
    """Return the gradients of ft_i + mu nu."""
    return with_ridge(context, x, context.oracle.gradient(x))


def with_ridge(context: Context, x: Array, y: Array) -> Array:
    """Return gradients (or estimates) y of ft_i at x plus those of mu nu."""
    mu = context.problem.mu
    return y + mu * context.domain.grad_nu(x) if mu > 0 else y


def smoothness(context: Context, L: float | None = None) -> float:
    """Return the smoothness constant of every ft_i + mu nu, or 1 if all are linear.

    L is that of the ft_i, if it is known. Otherwise it takes one flooded maximum.
    """
    return ((defaults.smoothness(context) if L is None else L) + context.problem.mu) or 1.0


def proximal(context: Context, v: Array, step: Array | float) -> Array:
    """Return argmin over X of r(x) + |x - v|^2/(2 step)."""
    return context.domain.prox(context.domain.grad_nu(v) / step, 1 / step)


def check_positive(method: object, *names: str) -> None:
    """Require that given parameters are positive, and convert them to Python floats."""
    for name in names:
        if (value := getattr(method, name)) is not None:
            require_number(name, value, "leave it out for the default", above=0)
            object.__setattr__(method, name, float(value))


def require_euclidean(context: Context, method: object) -> None:
    """Raise an error unless nu is half a squared distance."""
    name = type(method).__name__
    rule = f"{name} needs a Euclidean domain"
    require(context.domain.euclidean, rule, type(context.domain).__name__, "use Simplex, gs.AutoPDS() or gs.PDS()")


def require_unconstrained(context: Context, method: object) -> None:
    """Raise an error if there are sets or penalties."""
    require_euclidean(context, method)
    rule = f"{type(method).__name__} needs X = R^d and no penalty"
    require(is_free(context), rule, repr(context.problem), "use gs.AutoPDS(), gs.NIDS(), gs.EXTRA() or gs.PDS()")


def require_common_domain(context: Context, method: object) -> None:
    """Raise an error if nu is not Euclidean, or agents have different sets or penalties."""
    require_euclidean(context, method)
    _require_same(context, method, is_common(context), "X and penalty")


def require_common_prox(context: Context, method: object) -> None:
    """Raise an error if agents have different sets, penalties or nu."""
    _require_same(context, method, is_common(context, euclidean=False), "X, center and penalty")


def is_free(context: Context) -> bool:
    """Return whether X = R^d without a penalty, nu Euclidean, for all agents."""
    domain = context.domain
    here = isinstance(domain, Euclidean) and not domain.constrained and domain.penalty is None
    return not bool(reduce_constant(context.network, np.full(context.problem.m, not here), "or"))


def is_common(context: Context, *, euclidean: bool = True) -> bool:
    """Return whether all agents have the same X and penalty; unless nu is Euclidean, that too."""
    largest: list[Array] = []
    least: list[Array] = []
    for image in _images(context, euclidean=euclidean):
        xp = array_namespace(image)
        # Of agents that are all here, one row is enough.
        largest.append(xp.max(image, axis=0))
        least.append(xp.min(image, axis=0))
    both = xp.concat([*largest, *(-each for each in least)])[None, :]
    most, less = np.split(reduce_constant(context.network, both, "max"), 2)
    return bool(np.all(most + less <= _ROUNDING * (1 + np.abs(most))))


def _require_same(context: Context, method: object, same: bool, what: str) -> None:
    rule = f"{type(method).__name__} needs the same {what} for all agents"
    require(same, rule, repr(context.problem), "use gs.AutoPDS(), gs.NIDS(), gs.EXTRA() or gs.PDS()")


def require_strongly_convex(context: Context, method: object) -> None:
    """Raise an error if mu = 0."""
    rule, remedy = f"{type(method).__name__} needs mu > 0", "give Problem(..., mu=...), or use gs.PDS()"
    require(context.problem.mu > 0, rule, f"{context.problem.mu:g}", remedy)


def _images(context: Context, *, euclidean: bool = True) -> Iterator[Array]:
    """Yield each agent's prox of six points near and far, in opposite directions."""
    one, other = np.random.default_rng(0).normal(size=(2, context.problem.d))
    # Every halfspace lacks one of each opposite pair.
    for point in (0.1 * one, 1e6 * one, -1e6 * one, 1e6 * other, -1e6 * other, 1e12 * one):
        v = context.problem.placed(np.broadcast_to(point, (context.problem.m, context.problem.d)))
        yield proximal(context, v, 1.0) if euclidean else context.domain.prox(v, 1.0)

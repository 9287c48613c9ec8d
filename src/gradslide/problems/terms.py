"""Dual terms h whose prox step has a closed form. Sets are not terms, but dual domains."""

import abc
import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar, cast

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import as_dtype, at_least, dtype_of, is_numpy, on_device, vdot
from gradslide._support.errors import InputError, kind_of, require, unknown_name
from gradslide._support.keywords import CheckedArguments
from gradslide._support.types import Array, Device, Parameter
from gradslide.domains import Domain, Free
from gradslide.domains.parameters import Fit, checked

__all__ = ["Interval", "Linear", "Prox", "Quadratic", "Term"]

TermT = TypeVar("TermT", bound="Term")


class Term(CheckedArguments, abc.ABC):
    """A dual term h, on z as a row (1, k). Set and penalty of the dual domain are added to it.

    Except for `bind`, methods are those of the term that `bind` returns.
    """

    @property
    def offset(self) -> Parameter:
        """The vector b of a part <b, z> of h.

        Returns
        -------
        ndarray, shape (1, k), or float
            0 where there is no such part.
        """
        return 0.0

    @abc.abstractmethod
    def bind(self, domain: Domain) -> Self:
        """Check the term against a bound dual domain.

        Parameters
        ----------
        domain : Domain
            The dual domain, bound to one row of k entries.

        Returns
        -------
        Term
            The term with its parameters as rows.

        Raises
        ------
        InputError
            If the term has no closed form on this domain, or a parameter has the wrong shape.
        """

    def to(self, device: Device) -> Self:
        """Return the same bound term with its arrays on a device.

        Parameters
        ----------
        device : str or device or None
            For example "cuda"; None for NumPy.

        Returns
        -------
        Term
            A bound term for arrays on that device.

        Raises
        ------
        InputError
            If the class does not override this method: where its arrays are is not known.
        """
        if device is None:
            return self
        rule, remedy = (
            "this dual term cannot move to a device",
            "give it a method to(device), or leave the loss on the host",
        )
        raise InputError(rule, type(self).__name__, remedy)

    @abc.abstractmethod
    def prox(self, domain: Domain, theta: Array, scale: Array | float) -> Array:
        """Return argmin over Z of scale zeta(z) + h(z) - <theta, z>.

        Parameters
        ----------
        domain : Domain
            The bound dual domain: Z and zeta.
        theta : ndarray, shape (1, k)
            Linear term.
        scale : float or ndarray
            Weight of zeta, positive.

        Returns
        -------
        ndarray, shape (1, k)
            The minimizer.
        """

    @abc.abstractmethod
    def value(self, z: Array) -> float:
        """Return h(z).

        Parameters
        ----------
        z : ndarray, shape (1, k)
            The dual point.

        Returns
        -------
        float
            h(z); NaN where it is unknown.
        """

    @abc.abstractmethod
    def conjugate(self, domain: Domain, v: Array) -> float:
        """Return max over Z of <v, z> - h(z).

        Parameters
        ----------
        domain : Domain
            The bound dual domain: Z.
        v : ndarray, shape (1, k)
            The point, for example A x.

        Returns
        -------
        float
            inf where it is unbounded, NaN where it is unknown.
        """

    def violation(self, domain: Domain, v: Array) -> Array | None:
        """Return v minus its projection, for terms that constrain A x to a set.

        Parameters
        ----------
        domain : Domain
            The bound dual domain.
        v : ndarray, shape (1, k)
            The point, for example A x.

        Returns
        -------
        ndarray, shape (1, k), or None
            None for terms without constraints.
        """
        return None

    def escape(self, v: Array) -> Array:
        """Return the part of a direction that leads out of the set eventually.

        Used for terms that constrain A x to a set.

        Parameters
        ----------
        v : ndarray, shape (1, k)
            The direction.

        Returns
        -------
        ndarray, shape (1, k)
            v itself by default.
        """
        return v


@dataclass(frozen=True, eq=False)
class Linear(Term):
    """The term h(z) = <b, z>, which means A x = b where Z is the whole space.

    Parameters
    ----------
    b : array_like, shape () or (k,)
        0 by default.
    """

    b: Parameter = 0.0

    def __post_init__(self) -> None:
        checked("b", self.b)

    @property
    def offset(self) -> Parameter:
        return self.b

    def bind(self, domain: Domain) -> Self:
        return replace(self, b=_row(domain, "b", self.b))

    def to(self, device: Device) -> Self:
        return _moved(self, device, "b")

    def prox(self, domain: Domain, theta: Array, scale: Array | float) -> Array:
        return domain.prox(theta - self.b, scale)

    def value(self, z: Array) -> float:
        return float(vdot(cast(Array, self.b), z))

    def conjugate(self, domain: Domain, v: Array) -> float:
        return -float(domain.linear_minimum(self.b - v)[0])

    def violation(self, domain: Domain, v: Array) -> Array | None:
        return v - self.b if _is_free(domain) else None


@dataclass(frozen=True, eq=False)
class Quadratic(Term):
    """The term h(z) = weight/2 |z|^2 + <b, z>, on a Euclidean dual domain.

    Parameters
    ----------
    weight : float
        Positive.
    b : array_like, shape () or (k,)
        0 by default.
    """

    weight: float
    b: Parameter = 0.0

    def __post_init__(self) -> None:
        weight = checked("weight", self.weight)
        require(weight.ndim == 0 and bool(weight > 0), "weight must be a positive number", self.weight, "or use Linear")
        checked("b", self.b)

    @property
    def offset(self) -> Parameter:
        return self.b

    def bind(self, domain: Domain) -> Self:
        _require_euclidean(self, domain)
        return replace(self, weight=float(self.weight), b=_row(domain, "b", self.b))

    def to(self, device: Device) -> Self:
        return _moved(self, device, "b")

    def prox(self, domain: Domain, theta: Array, scale: Array | float) -> Array:
        # weight/2 |z|^2 is weight zeta(z) up to a linear term, but for zeta's weights.
        return domain.prox(theta - self._tilt(domain), scale + self.weight / _weights(domain))

    def value(self, z: Array) -> float:
        return float(vdot(cast(Array, self.b), z) + self.weight / 2 * vdot(z, z))

    def conjugate(self, domain: Domain, v: Array) -> float:
        z = domain.prox(v - self._tilt(domain), self.weight / _weights(domain))
        return float(vdot(v, z)) - self.value(z) - float(domain.r(z)[0])

    def _tilt(self, domain: Any) -> Array:
        return self.b + self.weight * domain.center


@dataclass(frozen=True, eq=False)
class Interval(Term):
    """The support function h(z) = max of <v, z> over lower <= v <= upper, which bounds A x.

    Parameters
    ----------
    lower, upper : array_like, shape () or (k,)
        Bounds on A x; either may be infinite.
    """

    lower: Parameter
    upper: Parameter

    def __post_init__(self) -> None:
        lower, upper = (checked(name, getattr(self, name), infinite=True) for name in ("lower", "upper"))
        try:
            ordered = bool(np.all(lower <= upper) and np.all(lower < np.inf) and np.all(upper > -np.inf))
        except ValueError:
            shapes = f"{lower.shape} and {upper.shape}"
            raise InputError("lower and upper must fit together", shapes, "give equal shapes") from None
        got = f"lower={self.lower}, upper={self.upper}"
        require(ordered, "lower <= upper, lower < inf and upper > -inf must hold", got, "swap or correct them")

    def bind(self, domain: Domain) -> Self:
        rule = "bounds on A x need a dual domain that is the whole space"
        require(_is_free(domain), rule, type(domain).__name__, "leave dual_domain out")
        return replace(self, lower=_row(domain, "lower", self.lower), upper=_row(domain, "upper", self.upper))

    def to(self, device: Device) -> Self:
        return _moved(self, device, "lower", "upper")

    def prox(self, domain: Any, theta: Array, scale: Array | float) -> Array:
        scale = scale * _weights(domain)
        theta = theta + scale * domain.center
        return (theta - self._nearest(theta)) / scale

    def value(self, z: Array) -> float:
        # A multiplier is 0 where the bound it belongs to is infinite.
        xp = array_namespace(z)
        ends = xp.where(z > 0, self.upper, xp.where(z < 0, self.lower, 0.0))
        return float(vdot(ends, z))

    def conjugate(self, domain: Domain, v: Array) -> float:
        return 0.0 if bool(array_namespace(v).all(v == self._nearest(v))) else math.inf

    def violation(self, domain: Domain, v: Array) -> Array | None:
        return v - self._nearest(v)

    def escape(self, v: Array) -> Array:
        xp = array_namespace(v)
        upwards = xp.where(xp.isfinite(self.upper), at_least(v, 0), 0)
        return cast(Array, upwards + xp.where(xp.isfinite(self.lower), -at_least(-v, 0), 0))

    def _nearest(self, v: Array) -> Array:
        xp = array_namespace(v)
        return cast(Array, xp.minimum(xp.maximum(v, self.lower), self.upper))


@dataclass(frozen=True, eq=False)
class Prox(Term):
    """A term given by functions of flat arrays of k entries; of a device, if the problem is on one.

    Parameters
    ----------
    prox : callable
        (v, step) -> argmin_z h(z) + |z - v|^2 / (2 step).
    value : callable, optional
        z -> h(z).
    conjugate : callable, optional
        v -> max_z <v, z> - h(z). With both, gaps can be measured.
    """

    prox_of: Callable[[Array, float], Array]
    value_of: Callable[[Array], float] | None = None
    conjugate_of: Callable[[Array], float] | None = None

    def __init__(
        self,
        prox: Callable[[Array, float], Array],
        value: Callable[[Array], float] | None = None,
        conjugate: Callable[[Array], float] | None = None,
    ) -> None:
        for name, given in (("prox", prox), ("value", value), ("conjugate", conjugate)):
            optional = name != "prox" and given is None
            require(optional or callable(given), f"{name} must be a function", kind_of(given), "see gs.terms.Prox")
        object.__setattr__(self, "prox_of", prox)
        object.__setattr__(self, "value_of", value)
        object.__setattr__(self, "conjugate_of", conjugate)

    def bind(self, domain: Domain) -> Self:
        rule = "a prox of your own needs a dual domain that is the whole space, with all coordinates weighted alike"
        free = _is_free(domain) and np.ndim(_weights(domain)) == 0
        require(free, rule, type(domain).__name__, "put the set into the prox")
        return self

    def to(self, device: Device) -> Self:
        return self

    def prox(self, domain: Any, theta: Array, scale: Array | float) -> Array:
        v = (domain.center + theta / scale)[0]
        z = self.prox_of(v, 1 / float(scale))
        if is_numpy(theta):
            z = np.asarray(z, dtype=theta.dtype)
        else:
            if is_numpy(z):
                rule = "prox must return an array on the device of its argument"
                raise InputError(rule, kind_of(z), "use that array's own operations")
            z = as_dtype(z, dtype_of(theta))
        require(z.shape == v.shape, f"prox must return an array of shape {v.shape}", z.shape, "check your prox")
        return z[None]

    def value(self, z: Array) -> float:
        return math.nan if self.value_of is None else float(self.value_of(z[0]))

    def conjugate(self, domain: Domain, v: Array) -> float:
        return math.nan if self.conjugate_of is None else float(self.conjugate_of(v[0]))


def as_term(h: Any) -> Term:
    """Return h as a term: a Term, None for 0, or an object with prox(v, step) as PyProximal's
    operators.
    """
    if h is None:
        return Linear()
    if isinstance(h, Term):
        return h
    if callable(getattr(h, "prox", None)) and not isinstance(h, Domain | type):
        return Prox(h.prox, value=h if callable(h) else None)
    raise InputError(
        "h must have a prox in closed form",
        kind_of(h),
        "use gs.terms.Linear, Quadratic or Interval, dual_domain= for a set or penalty, or gs.terms.Prox for your own",
    )


def interval(k: int, b: Any, sense: str | None, lower: Any, upper: Any) -> Interval:
    """Return the bounds of constraints that users give in one of two ways.

    Parameters
    ----------
    k : int
        Number of rows.
    b : array_like, shape () or (k,), or None
        Right-hand side.
    sense : {"==", "<=", ">="}, optional
        Relation to b; equality by default.
    lower, upper : array_like, shape () or (k,), or None
        Bounds, instead of b.

    Returns
    -------
    Interval

    Raises
    ------
    InputError
        If neither b nor bounds are given, or both are, or one does not fit.
    """
    got = f"b {'not ' * (b is None)}given, lower {'not ' * (lower is None)}given, upper {'not ' * (upper is None)}given"
    one = (b is None) != (lower is None and upper is None)
    require(one, "give b, or lower and upper (or one of them)", got, "b=0 for A x = 0")
    if b is None:
        require(sense is None, "sense goes with b", repr(sense), "leave it out: lower and upper say it")
        return Interval(-np.inf if lower is None else lower, np.inf if upper is None else upper)
    if sense not in (None, "==", "<=", ">="):
        raise unknown_name("sense", sense, ["==", "<=", ">="])
    rule = f"b must be a number or have one entry for each of the {k} rows of A"
    require(np.shape(b) in ((), (k,)), rule, f"shape {np.shape(b)}", "check it against A")
    b = checked("b", b, infinite=True)
    remedy = "rows without an end: lower= and upper= may be infinite"
    require(not np.isinf(b).any(), "b must be finite", b, remedy)
    return Interval(-np.inf if sense == "<=" else b, np.inf if sense == ">=" else b)


def _is_free(domain: Domain) -> bool:
    return isinstance(domain, Free) and domain.penalty is None


def _weights(domain: Domain) -> Array | float:
    return 1.0 if domain.weights is None else domain.weights


def _moved(term: TermT, device: Device, *names: str) -> TermT:
    """The bound term with these fields on a device; they were checked before."""
    new = copy.copy(term)
    for name in names:
        object.__setattr__(new, name, on_device(getattr(term, name), device))
    return new


def _require_euclidean(term: Term, domain: Domain) -> None:
    rule = f"h = {type(term).__name__} has a closed form on Euclidean dual domains only"
    require(domain.norm == 2, rule, type(domain).__name__, "use Simplex in place of EntropySimplex, or another h")


def _row(domain: Domain, name: str, value: Parameter) -> Array:
    values = np.asarray(value)
    rule = f"{name} must be a number or have one entry for each of the {domain.d} rows of A"
    require(values.shape in ((), (domain.d,)), rule, f"shape {values.shape}", "check it against A")
    return Fit(1, domain.d, domain.dtype).vector(name, values)

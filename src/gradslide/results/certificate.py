"""Certified bounds on the optimum, and residuals that are no certificate."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass

# Bounds leave room for rounding already: this is for what a user's own loss may add.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Certificate:
    """Certified bounds: lower <= optimum, and the objective `upper` at the answer.

    Attributes
    ----------
    lower : float
        A lower bound on the optimum; on a network it leaves room for rounding.
    upper : float
        On a network the sum of all f_i at the mean of the agents, so that the optimum lies between
        the two; infinite if the agents have sets of their own, since the mean need not be feasible.
        Otherwise the objective at x.
    residual : float
        On a network the disagreement max_i norm(x_i - mean): how far the agents are from the point
        of `upper`. Otherwise the distance of A x from the values that the constraints allow; if it
        is not 0, `upper` may lie below the optimum.

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.Certificate(lower=1.0, upper=1.5).gap
    0.5
    """

    lower: float
    upper: float
    residual: float = 0.0

    @property
    def gap(self) -> float:
        """upper - lower."""
        return self.upper - self.lower

    @property
    def refutation(self) -> str:
        """Why no optimum can lie between the bounds of a network; empty if one can."""
        if self.lower <= self.upper + _ROUNDING * abs(self.upper):
            return ""
        return (
            f"the lower bound {self.lower:.6g} is above the objective {self.upper:.6g}: the gradient is not that "
            "of the value, or the loss is not convex. gs.check_loss(loss) finds out"
        )


@dataclass(frozen=True)
class KKT:
    """Residuals of the optimality conditions on a network.

    They are no certificate: small residuals do not say how far the objective is from the optimum.
    `error` estimates that from the curvature; it does not depend on the units of the coordinates.

    Attributes
    ----------
    stationarity : float
        The norm, over all agents, of the steps x_i - argmin over X_i of
        mu nu + r + <grad ft_i(x_i) + w_i, .> + V(x_i, .), with multipliers w_i that sum to 0: those
        of the method for which it is smallest or, if it has none, mean gradient - own gradient.
    disagreement : float
        max_i norm(x_i - mean).
    scale : float
        The stationarity at the start, with w = 0.
    error : float or None
        An estimate of the objective at the mean less the optimum: what the quadratic model there
        gains over the set (half the squared Newton decrement if X = R^d). None if it is unknown:
        the loss has no Hessians, the agents have sets of their own, or d > 500 (but for Newton).
    objective : float or None
        The objective at the mean, if `error` is known.
    """

    stationarity: float
    disagreement: float
    scale: float
    error: float | None = None
    objective: float | None = None

    @property
    def consensus(self) -> float:
        """The disagreement; deprecated."""
        warnings.warn("KKT.consensus is now KKT.disagreement", DeprecationWarning, stacklevel=2)
        return self.disagreement

    @classmethod
    def from_dict(cls, saved: Mapping[str, float | None]) -> "KKT":
        """Return the residuals from a file; earlier versions wrote "consensus" for the disagreement."""
        disagreement = saved["disagreement"] if "disagreement" in saved else saved["consensus"]
        assert saved["stationarity"] is not None
        assert disagreement is not None
        assert saved["scale"] is not None
        return cls(saved["stationarity"], disagreement, saved["scale"], saved.get("error"), saved.get("objective"))

    def to_dict(self) -> dict[str, float | None]:
        """Return the residuals by name; "consensus", the earlier name of the disagreement, until 0.3."""
        return {**asdict(self), "consensus": self.disagreement}

    def __str__(self) -> str:
        start = f"{self.scale:.3g} at the start"
        residuals = f"stationarity {self.stationarity:.3g} ({start}), disagreement {self.disagreement:.3g}"
        return residuals if self.error is None else f"{residuals}, estimated error {self.error:.3g}"


@dataclass(frozen=True)
class SaddleKKT:
    """Relative residuals of the optimality conditions of a saddle point problem or linear constraints.

    With y the gradient at x and |.| the largest absolute entry, and u = 1, or |y| at the start where
    that is smaller, so that small units of the objective change nothing:

    Attributes
    ----------
    primal : float
        The violation of the constraints over 1 + max(|A x|, |A x - violation|), as in OSQP. Without
        constraints: the change of z by one step of size s = (1 + |z|)/(1 + |A x|) that maximizes
        <A x, .> - h over Z, over 1 + |z|.
    dual : float
        The change of x by one prox step of size t = (1 + |x|)/(u + max(|y|, |A^T z|)) along
        y + A^T z, over 1 + |x|. For coordinates without bounds this is OSQP's
        |y + A^T z|/(u + max(|y|, |A^T z|)).
    complementarity : float
        By how much x fails to minimize <y + A^T z, .> + mu nu + r over X, and z to maximize
        <A x, .> - h over Z, over u + |objective|: the duality gap of OSQP and PDLP. None if h is a
        function of the user's whose values are not known.

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.SaddleKKT(primal=1e-7, dual=1e-8, complementarity=1e-9).largest
    1e-07
    """

    primal: float
    dual: float
    complementarity: float | None

    @property
    def largest(self) -> float:
        """The largest of those that are known."""
        return max(each for each in (self.primal, self.dual, self.complementarity) if each is not None)

    def to_dict(self) -> dict[str, float | None]:
        """Return the residuals by name."""
        return asdict(self)

    def __str__(self) -> str:
        last = "unknown" if self.complementarity is None else f"{self.complementarity:.3g}"
        return f"primal {self.primal:.3g}, dual {self.dual:.3g}, complementarity {last}"


def residuals_from_dict(saved: Mapping[str, float | None]) -> KKT | SaddleKKT:
    """Return the residuals that `to_dict` of either class wrote."""
    if "primal" not in saved:
        return KKT.from_dict(saved)
    primal, dual = saved["primal"], saved["dual"]
    assert primal is not None
    assert dual is not None
    return SaddleKKT(primal, dual, saved["complementarity"])

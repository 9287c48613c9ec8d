"""Standard errors, tests and intervals from the exact sum of the Hessians at the optimum."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradslide._support.types import Array

# An eigenvalue of the Hessian, scaled to a diagonal of ones, below this is 0 up to rounding.
_COLLINEAR = 1e-12
# Entries that are named, relative to the largest.
_NAMED = 0.1
# Fewer sites than this say little about how sites differ.
_FEW_SITES = 10


@dataclass(frozen=True)
class Covariance:
    """The covariance of the coefficients, or why there is none.

    Attributes
    ----------
    matrix : ndarray or None
        Of the coefficients in original units.
    kind : {"model", "rows", "site", "none"}
    degrees : float
        Degrees of freedom of t; infinity for the normal distribution.
    problem : str
        Why there is none, or what is doubtful; empty if all is well.
    is_separated : bool
        Whether coefficients grow without end: no maximum likelihood estimate exists.
    """

    matrix: Array | None
    kind: str = "none"
    degrees: float = math.inf
    problem: str = ""
    is_separated: bool = False

    @property
    def standard_errors(self) -> Array | None:
        """Roots of the diagonal; None if there is no covariance."""
        return None if self.matrix is None else np.sqrt(np.diag(self.matrix))


@dataclass(frozen=True)
class Curvature:
    """What covariances are made of, in scaled columns.

    Attributes
    ----------
    gradient, hessian : ndarray, shapes (d,) and (d, d)
        Sums over all sites, without penalties.
    n, sites : int
        How many rows and sites there are.
    scale : float
        The variance of residuals, 1 without one.
    has_scale : bool
        Whether it is estimated.
    meat : ndarray or None
        The sum of outer products of gradients, for robust errors.
    """

    gradient: Array
    hessian: Array
    n: int
    sites: int
    scale: float
    has_scale: bool
    meat: Array | None = None

    def newton_step(self) -> Array:
        """Return the step of Newton's method from here, along directions with curvature."""
        root, values, vectors = self._eigen()
        inverse = np.where(values < _COLLINEAR, 0.0, 1 / np.maximum(values, _COLLINEAR))
        return -root * (vectors @ (inverse * (vectors.T @ (root * self.gradient))))

    def flat_directions(self) -> Array:
        """Return directions of length 1 without curvature, as columns."""
        root, values, vectors = self._eigen()
        flat = root[:, None] * vectors[:, values < _COLLINEAR]
        return flat / np.linalg.norm(flat, axis=0)

    def covariance(self, kind: str, way_back: Array, names: Sequence[str]) -> Covariance:
        """Return the covariance of the coefficients in original units.

        Parameters
        ----------
        kind : {"model", "rows", "site"}
        way_back : ndarray
            From scaled coefficients to original ones.
        names : sequence of str
            Of the columns of the scaled coefficients, for messages.
        """
        d, groups = len(self.hessian), self.sites
        root, values, vectors = self._eigen()
        if values[0] < _COLLINEAR:
            null = np.linalg.norm(vectors[:, values < _COLLINEAR], axis=1)
            listed = _listed(null, names)
            text = f"the rows do not determine the coefficients of {listed}: the columns are collinear; leave one out"
            return Covariance(None, problem=text)
        degrees = float(self.n - d) if self.has_scale else math.inf
        if self.n <= d and (self.has_scale or kind == "rows"):
            return Covariance(None, problem=f"{self.n} rows say nothing about the errors of {d} coefficients")
        inverse, problem = root[:, None] * (vectors / values @ vectors.T) * root, ""
        if self.meat is None:
            matrix = self.scale * inverse
        elif groups == 1 and kind == "site":
            return Covariance(None, problem="one site says nothing about how sites differ: no errors clustered by site")
        else:
            # The factors for small samples are those of statsmodels.
            factor = self.n / (self.n - d)
            if kind == "site":
                factor, degrees = groups / (groups - 1) * (self.n - 1) / (self.n - d), float(groups - 1)
                few = f"standard errors clustered by {groups} sites say little"
                problem = f'{few}; with fewer than {_FEW_SITES} prefer covariance="model" or "rows"'
            matrix = factor * inverse @ self.meat @ inverse
        matrix = way_back @ matrix @ way_back.T
        return Covariance((matrix + matrix.T) / 2, kind, degrees, problem if groups < _FEW_SITES else "")

    def _eigen(self) -> tuple[Array, Array, Array]:
        """Factors that scale the Hessian to a diagonal of ones, and its eigenvalues and eigenvectors then."""
        diagonal = np.diag(self.hessian)
        root = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        return root, *np.linalg.eigh(root[:, None] * self.hessian * root)


def no_maximum(growth: Array, names: Sequence[str]) -> Covariance:
    """Return that there is none where the optimum is at infinity.

    Parameters
    ----------
    growth : ndarray
        How fast coefficients of scaled columns grow.
    names : sequence of str
        Of these columns.
    """
    listed = _listed(growth, names)
    text = (
        "there is no maximum likelihood estimate: the features separate the outcomes, and the coefficients of "
        f"{listed} grow without end; leave one of them out, or add a ridge"
    )
    return Covariance(None, problem=text, is_separated=True)


def _listed(sizes: Array, names: Sequence[str]) -> str:
    """The names of the largest."""
    large = np.flatnonzero(sizes > _NAMED * sizes.max()).tolist()
    chosen = list(dict.fromkeys(repr(names[j]) for j in large))
    return ", ".join(chosen[:6]) + (", ..." if len(chosen) > 6 else "")


@dataclass(frozen=True)
class Tests:
    """What is tested of every coefficient.

    Attributes
    ----------
    errors, statistics, p_values : ndarray
        Standard errors; estimates over these; two-sided p-values.
    low, high : ndarray
        Ends of the confidence intervals.
    letter : str
        "t" or "z".
    """

    errors: Array
    statistics: Array
    p_values: Array
    low: Array
    high: Array
    letter: str

    @classmethod
    def of(cls, estimates: Array, covariance: Covariance, confidence: float) -> "Tests | None":
        """Test whether coefficients are 0; None without a covariance."""
        errors = covariance.standard_errors
        if errors is None:
            return None
        from scipy import stats  # it takes long

        is_normal = math.isinf(covariance.degrees)
        law = stats.norm() if is_normal else stats.t(covariance.degrees)
        with np.errstate(divide="ignore", invalid="ignore"):
            statistics = estimates / errors
        reach = float(law.ppf((1 + confidence) / 2)) * errors
        p_values = 2 * law.sf(np.abs(statistics))
        return cls(errors, statistics, p_values, estimates - reach, estimates + reach, "z" if is_normal else "t")


def likelihood_ratio(larger: float, smaller: float, degrees: int) -> tuple[float, float]:
    """Return twice the difference of log-likelihoods of nested models, and its p-value."""
    from scipy.special import chdtrc

    statistic = 2 * (larger - smaller)
    return statistic, float(chdtrc(degrees, max(statistic, 0.0))) if degrees > 0 else math.nan

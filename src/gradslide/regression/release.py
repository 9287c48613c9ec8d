"""Differentially private release of a fitted regression, by output perturbation.

With a ridge lam in all coordinates the objective is lam-strongly convex. Replacing one of its rows,
whose gradient has at most the norm G, moves the minimizer by at most 2 G/lam (K. Chaudhuri,
C. Monteleoni, A. D. Sarwate, JMLR 12, 2011); adding or removing one by at most G/lam. The answer is within
sqrt(2 gap/lam) of the minimizer, where `gap` is certified. Fits of both data sets may be off by that, so

    sensitivity = 2 G/lam + 2 sqrt(2 tau/lam),        gap <= tau.

tau does not depend on the data. Gaussian noise is calibrated exactly (B. Balle, Y.-X. Wang, ICML 2018).
"""

import json
import math
import os
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.special import log_ndtr, ndtr

from gradslide._support import storage
from gradslide._support.errors import InputError, require, require_number, unknown_name
from gradslide._support.types import Array
from gradslide.regression.schema import Schema

# The share of the sensitivity that approximate answers may add, by which tau is chosen.
_SLACK = 1e-2
# Noise is rounded to this share of its deviation: low-order bits of doubles could tell what was added to.
_GRID = 2.0**-16

Adjacency = Literal["replace", "add"]


@dataclass(frozen=True)
class Release:
    """What was promised of a release, and what it took.

    Attributes
    ----------
    epsilon, delta : float
    adjacency : {"replace", "add"}
        Whether data sets are neighbours if one row is replaced, or if one is added or removed.
    sensitivity : float
        The largest distance between answers for neighbouring data sets, in scaled coordinates.
    sigma : float
        Standard deviation of the noise in each of them.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    sensitivity: float
    sigma: float

    @property
    def mu(self) -> float:
        """The parameter of Gaussian differential privacy; squares of it add up."""
        return self.sensitivity / self.sigma


def sensitivity_of(gradient: float, strength: float, adjacency: Adjacency) -> tuple[float, float]:
    """Return the sensitivity of approximate minimizers, and the gap tau that they must have.

    Parameters
    ----------
    gradient : float
        A bound G on the norm of the gradient of one row.
    strength : float
        Strong convexity lam of the sum over all rows.
    adjacency : {"replace", "add"}
    """
    if adjacency not in ("replace", "add"):
        raise unknown_name("adjacency", adjacency, ("replace", "add"))
    exact = (2 if adjacency == "replace" else 1) * gradient / strength
    # 2 sqrt(2 tau/lam) = slack * exact
    return (1 + _SLACK) * exact, strength / 8 * (_SLACK * exact) ** 2


def calibrated(epsilon: float, delta: float, sensitivity: float, adjacency: Adjacency) -> Release:
    """Return the release with the least noise that keeps a promise.

    Raises
    ------
    InputError
        If epsilon or delta is not possible.
    """
    from scipy.optimize import brentq  # it takes long

    require_number("epsilon", epsilon, "for example 1.0", least=1e-6, most=100)
    require_number("delta", delta, "for example 1e-6, well below 1 over the number of rows", least=1e-100, most=0.5)
    # delta_of grows with mu.
    mu = brentq(lambda log: math.log(_delta_of(math.exp(log), epsilon)) - math.log(delta), -30.0, 10.0, xtol=1e-13)
    return Release(epsilon, delta, adjacency, sensitivity, sensitivity / math.exp(float(mu)))


def _delta_of(mu: float, epsilon: float) -> float:
    """The least delta of a Gaussian mechanism with sensitivity/sigma = mu."""
    second = math.exp(min(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)), 700.0))
    return max(float(ndtr(mu / 2 - epsilon / mu)) - second, 1e-300)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the least epsilon of a Gaussian mechanism with sensitivity/sigma = mu at this delta."""
    from scipy.optimize import brentq  # it takes long

    if _delta_of(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while _delta_of(mu, high) > delta:
        high *= 2
    return float(brentq(lambda epsilon: _delta_of(mu, epsilon) - delta, 0.0, high, xtol=1e-12))


def public_scales(schema: Schema) -> tuple[Array, Array]:
    """Return what columns are shifted and divided by, from their bounds: then entries are at most 1."""
    centre, scale = [], []
    for each in schema.features:
        low, high = each.bounds or (-1.0, 1.0)
        centre += [(low + high) / 2] if each.kind == "number" else [0.0] * (len(each.levels) - 1)
        scale += [(high - low) / 2] if each.kind == "number" else [1.0] * (len(each.levels) - 1)
    return np.array(centre), np.array(scale)


def gradient_bound(schema: Schema) -> float:
    """Return a bound on the norm of the gradient of one row, in scaled columns.

    A row has an entry of at most 1 for each number, at most one 1 for each category, and 1 for the
    intercept. The derivatives by the linear predictors have at most the norm 1, or sqrt(2) for three or
    more classes.
    """
    length = math.sqrt(len(schema.features) + 1)
    return length * (math.sqrt(2) if len(schema.classes) > 2 else 1.0)


def gap_for_release(schema: Schema, ridge: float) -> float:
    """Return the gap that is small enough for a release with either adjacency."""
    return sensitivity_of(gradient_bound(schema), ridge, "add")[1]


def noisy(values: Array, sigma: float, randomness: random.Random | None = None) -> Array:
    """Return values with Gaussian noise from the operating system's entropy, on a grid.

    Parameters
    ----------
    values : ndarray
    sigma : float
    randomness : random.Random, optional
        Another source, for tests only.
    """
    source = random.SystemRandom() if randomness is None else randomness
    noise = np.array([source.gauss(0.0, sigma) for _ in range(values.size)]).reshape(values.shape)
    grid = 2.0 ** math.floor(math.log2(sigma * _GRID))
    return np.round((values + noise) / grid) * grid


@dataclass(frozen=True)
class Entry:
    """A release in a ledger.

    Attributes
    ----------
    time : str
    run : str
        Of the model.
    schema : str
        The hash of its columns.
    epsilon, delta, mu : float
    adjacency : str
    """

    time: str
    run: str
    schema: str
    epsilon: float
    delta: float
    mu: float
    adjacency: str


class Ledger:
    """A file with one line for each release of the same rows, which accounts for all of them.

    Parameters
    ----------
    path : path-like
        Lines of JSON; made by the first release.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def entries(self) -> list[Entry]:
        """Return all releases so far.

        Raises
        ------
        InputError
            If a line cannot be read: what it says would not be accounted for.
        """
        if not self.path.exists():
            return []
        try:
            return [Entry(**json.loads(line)) for line in self.path.read_text(encoding="utf-8").splitlines()]
        except (ValueError, TypeError, OSError) as error:
            rule, remedy = "a ledger must hold one release per line", "restore the file: releases must not be forgotten"
            raise InputError(rule, f"{self.path} ({error})", remedy) from None

    def spent(self, delta: float, more: Sequence[float] = ()) -> float:
        """Return the epsilon of all releases together.

        Parameters
        ----------
        delta : float
            For all of them together.
        more : sequence of float
            The mu of further releases.
        """
        mus = [each.mu for each in self.entries()] + list(more)
        return epsilon_of(math.sqrt(sum(mu**2 for mu in mus)), delta) if mus else 0.0

    def add(self, release: Release, run: str, schema: str, budget: tuple[float, float] | None) -> None:
        """Write a release, before anybody sees it.

        Parameters
        ----------
        release : Release
        run, schema : str
            Of the model.
        budget : tuple of float, optional
            (epsilon, delta) that all releases together must keep.

        Raises
        ------
        InputError
            If the budget would be exceeded, or releases have another adjacency.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Two releases at the same time must not both find room in the budget.
        with storage.locked(self.path, waits=True):
            self._check(release, budget)
            entry = Entry(
                datetime.now(UTC).isoformat(timespec="seconds"),
                run,
                schema,
                release.epsilon,
                release.delta,
                release.mu,
                release.adjacency,
            )
            storage.append_line(self.path, json.dumps(asdict(entry)))

    def _check(self, release: Release, budget: tuple[float, float] | None) -> None:
        others = {each.adjacency for each in self.entries()} - {release.adjacency}
        rule = "all releases in a ledger must have the same adjacency"
        require(not others, rule, f"{release.adjacency} after {', '.join(others)}", "use the same")
        if budget is not None:
            epsilon, delta = budget
            total = self.spent(delta, [release.mu])
            rule = f"all releases together must keep epsilon = {epsilon:g} at delta = {delta:g}"
            require(
                total <= epsilon * (1 + 1e-9),
                rule,
                f"{total:.4g} with this one",
                "release less, or with a smaller epsilon",
            )

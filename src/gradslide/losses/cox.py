"""Proportional hazards: Cox regression of survival times."""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gradslide._support.errors import InputError, require
from gradslide._support.types import Array, ArrayLike, SparseInput
from gradslide.losses.base import Loss
from gradslide.losses.devices import home_of
from gradslide.losses.inputs import feature_rows, is_sparse, per_row
from gradslide.losses.partition import partition

# Exponentials of a logarithm that grows by at most so much do not overflow.
_SPAN = 500.0


class Cox(Loss):
    """Cox regression, stratified by agent: ft_i is minus the log partial likelihood of agent i's rows.

    At an event time t of agent i let R(t) be its rows with time >= t, and D(t) the d rows among them
    with an event at t. With Efron's treatment of ties

        ft_i(x) = sum over t of wbar (log u_0 + ... + log u_(d-1)) - sum over D(t) of w a x
        u_l     = sum over R(t) of w exp(a x) - l/d sum over D(t) of w exp(a x)

    where wbar is the mean weight of the rows in D(t). Each agent has a baseline hazard of its own, and
    compares its rows with each other only: agents share nothing but x.

    Parameters
    ----------
    features : array_like or scipy.sparse matrix, shape (n, p)
        Rows a. No column of ones: an intercept has no effect.
    time : array_like, shape (n,)
        Time >= 0 of the event, or of censoring.
    event : array_like, shape (n,)
        1 or True for an event, 0 or False for a row that was censored.
    agents : int, optional
        Number of contiguous blocks of rows, as equal as possible; 1 by default.
    splits : sequence, optional
        Instead of `agents`: the row numbers, or a mask, of each agent.
    sample_weight : array_like, shape (n,), optional
        Nonnegative weights w of the rows, 1 by default. A row of weight 0 counts as left out.
    strata : array_like, shape (n,), optional
        Labels of further strata: an agent compares rows of equal labels only.

    Notes
    -----
    Values, gradients and Hessians are those of lifelines' `CoxPHFitter`, weights included, with agents
    and strata as strata. A row of weight 2 is not quite the same as two rows, which would be tied. An
    agent without events has ft_i = 0.

    Features are kept dense, in double precision, less their mean in each stratum, which changes
    nothing but rounding. Computations are in double precision, too; gradients have the precision of
    the features.

    Scores a x may differ by any amount: sums of exponentials are computed by their logarithms.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> treated = [[1.0], [0.0], [1.0], [0.0], [1.0], [0.0]]
    >>> loss = gs.losses.Cox(treated, time=[1, 2, 3, 5, 6, 4], event=np.ones(6), agents=3)
    >>> loss.value(np.zeros((3, 1))).round(6).tolist()  # log 2, log 2, log 2
    [0.693147, 0.693147, 0.693147]
    >>> solution = gs.solve(gs.Problem(loss), gs.Graph.path(3), gs.Newton())
    >>> float(np.exp(solution.mean[0]).round(4))  # in two of three pairs the treated one has the event first
    2.0
    """

    def __init__(
        self,
        features: ArrayLike | SparseInput,
        time: ArrayLike,
        event: ArrayLike,
        *,
        agents: int | None = None,
        splits: Sequence[ArrayLike] | None = None,
        sample_weight: ArrayLike | None = None,
        strata: ArrayLike | None = None,
    ) -> None:
        columns = getattr(features, "columns", None)
        self.feature_names = None if columns is None else [str(name) for name in columns]
        found = feature_rows(features)
        rule, remedy = "features of Cox must be NumPy's, or a scipy sparse array", "convert them to NumPy"
        require(home_of(found) is None, rule, type(features).__name__, remedy)
        n, p = found.shape
        times, events, weights = _times(time, n), _events(event, n), _weights(sample_weight, n)
        self._labels, codes = _strata(strata, n)
        selected, self._sizes = partition(n, agents, splits)
        super().__init__(len(self._sizes), p, found.dtype)
        numbers = np.arange(n)[selected]
        owners = np.repeat(np.arange(self.m), self._sizes)
        places = np.arange(len(numbers)) - np.repeat(np.cumsum(self._sizes) - self._sizes, self._sizes)
        # By agent and stratum, the latest time first: those at risk at a time come before those that are not.
        order = np.lexsort((-times[numbers], codes[numbers], owners))
        order = order[weights[numbers[order]] > 0]
        order = order[_at_risk(owners[order], *(each[numbers[order]] for each in (codes, times, events)))]
        numbers = numbers[order]
        own = found[numbers]
        own = np.asarray(own.toarray() if is_sparse(own) else own, dtype=np.float64)
        codes, times, events, weights = (each[numbers] for each in (codes, times, events, weights))
        rows = _Rows(own, codes, times, events, weights, owners[order], places[order])
        risks = _RiskSets(rows, self.m)
        firsts, own_weights = np.flatnonzero(_changes(risks.groups)), rows.weights[:, None]
        centres = np.add.reduceat(rows.features * own_weights, firsts) / np.add.reduceat(own_weights, firsts)
        self._rows = rows._replace(features=rows.features - centres[risks.groups])
        self._risks, self._centres = risks, centres

    def value(self, x: Array) -> Array:
        return self._at(x).values

    def value_in_doubles(self, x: Array) -> Array:
        return _Point(self._rows, self._risks, np.asarray(x, dtype=np.float64)).values

    def gradient(self, x: Array) -> Array:
        return self._at(x).gradients.astype(self.dtype)

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        point = self._at(x)
        return point.values, point.gradients.astype(self.dtype)

    @property
    def has_hessian(self) -> bool:
        return True

    def hessian(self, x: Array) -> Array:
        return self._at(x).hessians

    def derivatives(self, x: Array) -> tuple[Array, Array, Array]:
        point = self._at(x)
        return point.values, point.gradients.astype(self.dtype), point.hessians

    def column_squares(self) -> Array:
        """Return the sum of squares of each column of the features less their means, for each agent.

        Returns
        -------
        ndarray, shape (m, p)
            Over the rows that are at risk at some event. Means are those in each stratum.
        """
        features = self._rows.features
        return np.stack([np.square(features[own]).sum(axis=0) for own in self._risks.rows_of_agents])

    def compute_smoothness(self, norm: int) -> Array:
        """Compute an upper bound of the Lipschitz constant of each agent's gradient.

        The Hessian is a sum over events of w times the covariance of the rows at risk under some
        distribution. The variance of a column is at most a quarter of its squared range. The norm of
        the covariance is at most the sum of these, and the largest |a - c|^2 of a row, whatever c is.
        """
        features, risks = self._rows.features, self._risks
        largest, smallest, squares = (
            risks.running(extreme, each)
            for extreme, each in ((np.maximum, features), (np.minimum, features), (np.maximum, _squares(features)))
        )
        variances = np.square((largest - smallest) / 2)
        if norm == 1:
            sums = [risks.totals[own] @ variances[own] for own in risks.steps_of_agents]
            return np.stack(sums).max(axis=1)
        bounds = risks.totals * np.minimum(variances.sum(axis=1), squares)
        return np.array([bounds[own].sum() for own in risks.steps_of_agents])

    def score_residuals(self, x: Array) -> list[Array]:
        """Return what each row contributes to minus the gradient: its score residual times its weight.

        It is the weight times the derivative of minus the gradient with respect to the weight, ties
        included. Without ties these are the score residuals of lifelines and of statsmodels, which
        both ignore ties there. With r such a row, H the Hessian summed over the agents and x the
        optimum, H^-1 r is about how much x changes if the row is added. The sum over all rows of
        (H^-1 r) (H^-1 r)' is the robust covariance of Lin and Wei (1989).

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        list of ndarray, shape (n_i, p)
            For each agent, one row for each of its rows, in their order.
        """
        found = [np.zeros((size, self.d)) for size in self._sizes]
        residuals = self._at(x).residuals
        for residual, own in zip(found, self._risks.rows_of_agents, strict=True):
            residual[self._rows.places[own]] = residuals[own]
        return found

    def baseline(self, x: Array, stratum: object = None) -> list[tuple[Array, Array]]:
        """Return Breslow's estimate of each agent's baseline cumulative hazard.

        It is the cumulative hazard of a row of zeros, and exp(a x) times that of a row a. lifelines
        gives it for a row of means instead.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.
        stratum : object, optional
            The label of the stratum, if the loss was given `strata`.

        Returns
        -------
        list of tuple of ndarray, shapes (k_i,) and (k_i,)
            For each agent the times of events, in increasing order, and the cumulative hazard from
            each of them on. Both are empty where the agent has no events.

        Raises
        ------
        InputError
            If `stratum` is no label of `strata`.
        """
        code = self._code(stratum)
        x = np.asarray(self._checked(x), dtype=np.float64)
        risks, at_risk = self._risks, _Point(self._rows, self._risks, x).at_risk
        found = [(np.empty(0), np.empty(0)) for _ in range(self.m)]
        for steps, centre in zip(risks.steps_of_groups, self._centres, strict=True):
            first = risks.starts[steps.start]
            i = self._rows.owners[first]
            if self._rows.strata[first] == code:
                with np.errstate(over="ignore"):
                    jumps = risks.totals[steps] * np.exp(-at_risk[steps] - centre @ x[i])
                found[i] = risks.times[steps][::-1], np.cumsum(jumps[::-1])
        return found

    def take_agents(self, agents: Array) -> "Cox":
        risks = self._risks
        slices = [risks.rows_of_agents[i] for i in agents]
        rows = _Rows(*(np.concatenate([each[own] for own in slices]) for each in self._rows))
        rows = rows._replace(owners=np.repeat(np.arange(len(agents)), [own.stop - own.start for own in slices]))
        owners = self._rows.owners[risks.starts[[steps.start for steps in risks.steps_of_groups]]]
        part = object.__new__(type(self))
        Loss.__init__(part, len(agents), self.d, self.dtype)
        part.feature_names, part._labels, part._sizes = self.feature_names, self._labels, self._sizes[agents]
        part._rows, part._risks = rows, _RiskSets(rows, len(agents))
        part._centres = np.concatenate([self._centres[owners == i] for i in agents])
        return part

    def _at(self, x: Array) -> "_Point":
        return _Point(self._rows, self._risks, np.asarray(self._checked(x), dtype=np.float64))

    def _code(self, stratum: object) -> int:
        """The number of a stratum."""
        if self._labels is None:
            require(stratum is None, "stratum needs a loss with strata", repr(stratum), "leave it out")
            return 0
        labels = self._labels.tolist()
        rule = f"stratum must be one of the {len(labels)} labels in strata"
        require(stratum in labels, rule, repr(stratum), f"for example stratum={labels[0]!r}")
        return labels.index(stratum)


class _Rows(NamedTuple):
    """Rows of positive weight that are at risk at some event, by agent and stratum, the latest time first."""

    features: Array
    strata: Array
    times: Array
    events: Array
    weights: Array
    owners: Array
    places: Array  # the number of a row among its agent's


class _RiskSets:
    """Which rows are at risk when.

    A step is an event time in one stratum of an agent, the latest first. Steps of a stratum follow each
    other: at each of them some rows enter, and nobody leaves.
    """

    def __init__(self, rows: _Rows, m: int) -> None:
        self.groups = np.cumsum(_changes(rows.owners, rows.strata)) - 1
        blocks = np.cumsum(_changes(self.groups, rows.times)) - 1
        has_event = np.bincount(blocks, weights=rows.events) > 0
        self.steps: Array = (np.cumsum(has_event) - has_event)[blocks]  # at which each row enters
        self.starts = np.flatnonzero(_changes(self.steps))
        self.steps_of_groups = _runs(self.groups[self.starts])
        self.log_weights = np.log(rows.weights)
        # Events, of which each also stands for a term l.
        self.deaths = np.flatnonzero(rows.events)
        self.death_steps: Array = self.steps[self.deaths]
        self.death_starts = np.flatnonzero(_changes(self.death_steps))
        counts = np.bincount(self.death_steps, minlength=len(self.starts))
        self.shares = (np.arange(len(self.deaths)) - self.death_starts[self.death_steps]) / counts[self.death_steps]
        self.times = rows.times[self.deaths[self.death_starts]]
        self.totals = np.add.reduceat(rows.weights[self.deaths], self.death_starts)  # weights of events
        self.mean_weights = (self.totals / counts)[self.death_steps]
        self.log_means = np.log(self.mean_weights)
        self.rows_of_agents, self.steps_of_agents, self.deaths_of_agents = (
            _slices(owners, m) for owners in (rows.owners, rows.owners[self.starts], rows.owners[self.deaths])
        )

    def running(self, ufunc: np.ufunc, of_rows: Array) -> Array:
        """Return sums, or what else ufunc computes, over all rows at risk at each step."""
        found = ufunc.reduceat(of_rows, self.starts)
        for own in self.steps_of_groups:
            ufunc.accumulate(found[own], out=found[own])
        return found


class _Point:
    """What follows from x of all agents, computed when it is asked for, and once."""

    def __init__(self, rows: _Rows, risks: _RiskSets, x: Array) -> None:
        self.rows, self.risks = rows, risks
        slices = risks.rows_of_agents
        self.scores = np.concatenate([rows.features[own] @ own_x for own, own_x in zip(slices, x, strict=True)])
        self.logs = self.scores + risks.log_weights  # of w exp(a x)

    @cached_property
    def at_risk(self) -> Array:
        """The logarithm of the sum over R(t), for each step."""
        return self.risks.running(np.logaddexp, self.logs)

    @cached_property
    def dying(self) -> Array:
        """The sum over D(t) as a share of that over R(t), for each event."""
        risks = self.risks
        sums = np.logaddexp.reduceat(self.logs[risks.deaths], risks.death_starts)
        return np.exp(np.minimum(sums - self.at_risk, 0.0))[risks.death_steps]  # rounding may make it more than 1

    @cached_property
    def terms(self) -> Array:
        """log u_l, for each event."""
        return self.at_risk[self.risks.death_steps] + np.log1p(-self.risks.shares * self.dying)

    @cached_property
    def values(self) -> Array:
        risks, deaths = self.risks, self.risks.deaths
        of_events = risks.mean_weights * self.terms - self.rows.weights[deaths] * self.scores[deaths]
        return np.array([of_events[own].sum() for own in risks.deaths_of_agents])

    @cached_property
    def jumps(self) -> Array:
        """The logarithm of the sum over l of wbar/u_l, for each step."""
        return np.logaddexp.reduceat(self.risks.log_means - self.terms, self.risks.death_starts)

    @cached_property
    def hazards(self) -> Array:
        """The logarithm of the sum of these over the step and all earlier times."""
        found = self.jumps.copy()
        for own in self.risks.steps_of_groups:
            backwards = found[own][::-1]
            np.logaddexp.accumulate(backwards, out=backwards)
        return found

    @cached_property
    def parts(self) -> Array:
        """The share of each term in the jump of its step."""
        return np.exp(self.risks.log_means - self.terms - self.jumps[self.risks.death_steps])

    @cached_property
    def own_jumps(self) -> Array:
        """w exp(a x) times the jump at its own time, for each event."""
        return np.exp(self.logs[self.risks.deaths] + self.jumps[self.risks.death_steps])

    @cached_property
    def expected(self) -> Array:
        """The derivative of the sum of all wbar log u_l with respect to the score of each row."""
        risks = self.risks
        found = np.exp(self.logs + self.hazards[risks.steps])
        tied = np.add.reduceat(self.parts * risks.shares, risks.death_starts)
        found[risks.deaths] -= self.own_jumps * tied[risks.death_steps]
        return found

    @cached_property
    def gradients(self) -> Array:
        slopes, features = self.expected - self.rows.events * self.rows.weights, self.rows.features
        return np.stack([slopes[own] @ features[own] for own in self.risks.rows_of_agents])

    @cached_property
    def means(self) -> Array:
        """The gradient of each log u_l: a mean of features."""
        rows, risks = self.rows, self.risks
        weights = np.exp(self.logs - self.at_risk[risks.steps])[:, None]
        found = np.add.reduceat(weights * rows.features, risks.starts)
        for own in risks.steps_of_groups:
            _accumulate_scaled(found[own], self.at_risk[own])
        deaths = np.add.reduceat((weights * rows.features)[risks.deaths], risks.death_starts)
        shares = risks.shares[:, None]
        return (found[risks.death_steps] - shares * deaths[risks.death_steps]) / (1 - shares * self.dying[:, None])

    @cached_property
    def hessians(self) -> Array:
        rows, risks = self.rows, self.risks
        own_slices = zip(risks.rows_of_agents, risks.deaths_of_agents, strict=True)
        return np.stack(
            [
                _gram(rows.features[own], self.expected[own]) - _gram(self.means[deaths], risks.mean_weights[deaths])
                for own, deaths in own_slices
            ]
        )

    @cached_property
    def residuals(self) -> Array:
        """The score residuals of all rows times their weights."""
        rows, risks, deaths = self.rows, self.risks, self.risks.deaths
        weighted = self.parts[:, None] * self.means
        of_steps = np.add.reduceat(weighted, risks.death_starts)
        found = of_steps * np.exp(self.jumps - self.hazards)[:, None]
        for own in risks.steps_of_groups:
            _accumulate_scaled(found[own][::-1], self.hazards[own][::-1])
        residuals = np.exp(self.logs + self.hazards[risks.steps])[:, None] * found[risks.steps]
        residuals -= self.expected[:, None] * rows.features
        tied, means = (
            np.add.reduceat(each, risks.death_starts)[risks.death_steps]
            for each in (risks.shares[:, None] * weighted, self.means)
        )
        residuals[deaths] -= self.own_jumps[:, None] * tied
        counts = np.bincount(risks.death_steps)[risks.death_steps, None]
        residuals[deaths] += rows.weights[deaths, None] * (rows.features[deaths] - means / counts)
        return residuals


def _accumulate_scaled(sums: Array, logs: Array) -> None:
    """Set each sums[k] to the sum of sums[j] exp(logs[j] - logs[k]) over j <= k; logs do not decrease."""
    first = 0
    while first < len(logs):
        end = first + int(np.searchsorted(logs[first:], logs[first] + _SPAN, side="right"))
        scales = np.exp(logs[first:end] - logs[first])[:, None]
        sums[first:end] = np.cumsum(sums[first:end] * scales, axis=0) / scales
        if end < len(logs):
            sums[end] += np.exp(logs[end - 1] - logs[end]) * sums[end - 1]
        first = end


def _gram(rows: Array, weights: Array) -> Array:
    return (rows.T * weights) @ rows


def _squares(rows: Array) -> Array:
    """|a|^2 of each row."""
    return np.vecdot(rows, rows)


def _changes(*keys: Array) -> Array:
    """Whether the keys of each row differ from those of the row before."""
    found = np.ones(len(keys[0]), dtype=bool)
    found[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return found


def _runs(keys: Array) -> list[slice]:
    """The runs of equal keys."""
    bounds = [*np.flatnonzero(_changes(keys)).tolist(), len(keys)]
    return [slice(*pair) for pair in pairwise(bounds)]


def _slices(owners: Array, m: int) -> list[slice]:
    """Where each agent's part of something that is sorted by agent lies."""
    bounds = np.searchsorted(owners, np.arange(m + 1)).tolist()
    return [slice(*pair) for pair in pairwise(bounds)]


def _at_risk(owners: Array, strata: Array, times: Array, events: Array) -> Array:
    """Whether rows, sorted by agent and stratum, are at risk at some event."""
    is_first = _changes(owners, strata)
    earliest = np.minimum.reduceat(np.where(events, times, np.inf), np.flatnonzero(is_first))
    return times >= earliest[np.cumsum(is_first) - 1]


def _times(time: ArrayLike, n: int) -> Array:
    found = per_row("time", time, n).astype(np.float64)
    require(not (found < 0).any(), "time must not be negative", found.min(initial=0), "count it from the start of risk")
    return found


def _events(event: ArrayLike, n: int) -> Array:
    found = per_row("event", event, n, "map events to 1 and censored rows to 0")
    wrong = np.unique(found[(found != 0) & (found != 1)])
    rule, remedy = "event must be 0 or 1, or a boolean", "map events to 1 and censored rows to 0"
    require(not wrong.size, rule, wrong[:5].tolist(), remedy)
    return found.astype(bool)


def _weights(sample_weight: ArrayLike | None, n: int) -> Array:
    if sample_weight is None:
        return np.ones(n)
    found = per_row("sample_weight", sample_weight, n).astype(np.float64)
    require(not (found < 0).any(), "sample_weight must not be negative", found.min(initial=0), "drop rows by weight 0")
    return found


def _strata(strata: Any, n: int) -> tuple[Array | None, Array]:
    """The labels, and the number of each row's label."""
    if strata is None:
        return None, np.zeros(n, dtype=np.intp)
    given = np.asarray(strata)
    rule, remedy = f"strata must be 1-D with one label per row of features, {n} in all", "give one label for each row"
    require(given.shape == (n,), rule, f"shape {given.shape}", remedy)
    missing = given != given
    require(not np.any(missing), "strata must have no missing labels", f"{np.sum(missing)} of them", "name them")
    try:
        labels, codes = np.unique(given, return_inverse=True)
    except TypeError:
        kinds = ", ".join(sorted({type(label).__name__ for label in given.tolist()}))
        raise InputError("labels in strata must be of one type", kinds, "convert them to text") from None
    return labels, codes

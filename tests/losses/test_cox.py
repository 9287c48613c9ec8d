"""Cox regression: naive loops, statsmodels and lifelines, ties, weights, strata, and scores that exp cannot hold."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.losses import Cox, LeastSquares, stack

M, N, P = 4, 160, 3
RNG = np.random.default_rng(11)
ROWS = RNG.normal([0.0, 40.0, 0.0], 1.0, size=(N, P))  # far from 0: nothing but differences of rows counts
TRUTH = np.array([0.6, -0.4, 0.2])
LIFE, CENSORED = RNG.exponential(8 * np.exp(-(ROWS - ROWS.mean(axis=0)) @ TRUTH)), RNG.exponential(9, N)
EXACT, EVENT = np.minimum(LIFE, CENSORED), LIFE <= CENSORED
TIME = np.ceil(EXACT / 2)  # many ties
WEIGHTS = RNG.uniform(0.3, 3.0, N)
STRATA = RNG.choice(["a", "b", "c"], N)
SITE = RNG.integers(M, size=N)
SPLITS = [np.flatnonzero(SITE == i) for i in range(M)]
X = np.random.default_rng(1).normal(size=(M, P))

STOP = gs.Stop(kkt=gs.Relative(1e-9), iterations=100)


def make(features=ROWS, time=TIME, event=EVENT, **given):
    return Cox(features, time, event, **({"splits": SPLITS} | given))


def at_all(x, m=M):
    return np.tile(x, (m, 1))


def naive(x, own, *, time=TIME, weights=None, strata=None):
    """Minus the log partial likelihood as it is written, with Efron's ties."""
    w, value = np.ones(N) if weights is None else weights, 0.0
    labels = np.zeros(N) if strata is None else strata
    terms = w * np.exp(ROWS @ x)
    for label in np.unique(labels[own]):
        rows = own[labels[own] == label]
        for t in np.unique(time[rows][EVENT[rows]]):
            at_risk, dead = rows[time[rows] >= t], rows[(time[rows] == t) & EVENT[rows]]
            d = len(dead)
            logs = [np.log(terms[at_risk].sum() - k / d * terms[dead].sum()) for k in range(d)]
            value += w[dead].mean() * np.sum(logs) - np.sum(w[dead] * (ROWS[dead] @ x))
    return value


def differences(function, x, step=1e-5):
    """Central differences along each coordinate, the last axis."""
    moves = step * np.eye(P)
    return np.stack([(function(x + move) - function(x - move)) / (2 * step) for move in moves], axis=-1)


GIVEN = [{}, {"sample_weight": WEIGHTS}, {"strata": STRATA}, {"sample_weight": WEIGHTS, "strata": STRATA}]


# ---- values and derivatives


def test_there_are_ties_and_censored_rows():
    deaths = [np.unique(TIME[own][EVENT[own]], return_counts=True)[1] for own in SPLITS]
    assert all(counts.max() >= 4 for counts in deaths)
    assert 0.2 < EVENT.mean() < 0.8


@pytest.mark.parametrize("time", [TIME, EXACT])
@pytest.mark.parametrize("given", GIVEN)
def test_it_is_the_partial_likelihood_of_each_agent(given, time):
    found = make(time=time, **given).value(X)
    settings = {"weights": given.get("sample_weight"), "strata": given.get("strata")}
    wanted = [naive(x, own, time=time, **settings) for x, own in zip(X, SPLITS, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("given", GIVEN)
def test_derivatives(given):
    loss = make(**given)
    value, gradient, hessian = loss.derivatives(X)
    np.testing.assert_allclose(differences(loss.value, X), gradient, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(differences(loss.gradient, X), hessian, rtol=1e-7, atol=1e-6)
    assert np.linalg.eigvalsh(hessian).min() > 0
    for found, wanted in (
        (loss.value(X), value),
        (loss.gradient(X), gradient),
        (loss.hessian(X), hessian),
        (loss.value_and_gradient(X)[0], value),
        (loss.value_and_gradient(X)[1], gradient),
        (loss.value_in_doubles(X), value),
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("given", GIVEN)
def test_check_loss_finds_nothing(given):
    report = gs.check_loss(make(**given))
    assert report.ok, str(report)
    assert not report.skipped


def test_a_difference_of_scores_that_exp_cannot_hold():
    """Only differences between rows at risk together count: time goes against the scores, then along with them."""
    ranks = np.arange(6.0)
    for time in (ranks, ranks[::-1]):
        loss = Cox(ranks[:, None], time, np.ones(6))
        for x in (400.0, -400.0, 1e6):
            value, gradient, hessian = loss.derivatives(np.full((1, 1), x))
            largest = [np.max(x * ranks[time >= t]) for t in time]
            assert value[0] == pytest.approx(np.sum(largest - x * ranks), rel=1e-12, abs=1e-9)
            slope = sum((ranks[time >= t].max() if x > 0 else ranks[time >= t].min()) for t in time) - ranks.sum()
            assert gradient[0, 0] == pytest.approx(slope, abs=1e-8)
            assert hessian[0, 0, 0] == pytest.approx(0.0, abs=1e-7)
    # Halves of the rows at risk at two levels, of which the one that is at risk to the end cannot be seen from the
    # other: each adds the variance of its own rows.
    levels = np.array([0.0, 1.0, 0.0, 1.0])
    rows = np.column_stack([levels, [0.0, 0.0, 1.0, 1.0]])
    hessian = Cox(rows, [5, 6, 1, 2], [1, 0, 1, 0]).hessian(np.array([[0.0, 2000.0]]))[0]
    np.testing.assert_allclose(hessian, [[0.5, 0.0], [0.0, 0.0]], atol=1e-12)


def test_scores_that_differ_more_and_more():
    """Rows at risk together differ by up to 1500 in score, those that enter one after the other by about 1."""
    n, rng = 1500, np.random.default_rng(4)
    rows = np.column_stack([np.arange(n), rng.normal(size=n), rng.normal(size=n)])
    for sign in (1.0, -1.0):
        x = np.array([sign, 0.3, -0.2])
        event = rng.random(n) < 0.7
        loss = Cox(rows, np.arange(n)[::-1], event)
        expected, hessian = np.zeros(P), np.zeros((P, P))
        for k in np.flatnonzero(event):
            terms = np.exp(rows[: k + 1] @ x - np.max(rows[: k + 1] @ x))
            terms, own = terms / terms.sum(), rows[: k + 1] - rows[k]
            expected += terms @ own
            hessian += (terms * (own - terms @ own).T) @ (own - terms @ own)
        np.testing.assert_allclose(loss.gradient(x[None])[0], expected, rtol=1e-9, atol=1e-8)
        np.testing.assert_allclose(loss.hessian(x[None])[0], hessian, rtol=1e-8, atol=1e-7)
        residuals = loss.score_residuals(x[None])[0]
        np.testing.assert_allclose(residuals.sum(axis=0), -expected, rtol=1e-8, atol=1e-7)


def test_features_in_single_precision():
    loss, exact = make(ROWS.astype(np.float32), sample_weight=WEIGHTS), make(sample_weight=WEIGHTS)
    x = X.astype(np.float32)
    assert loss.dtype == loss.gradient(x).dtype == np.float32
    assert loss.value(x).dtype == loss.hessian(x).dtype == np.float64
    same = make(ROWS.astype(np.float32).astype(np.float64), sample_weight=WEIGHTS)
    np.testing.assert_array_equal(loss.value_in_doubles(X), same.value(X))
    assert np.all(loss.value_in_doubles(X) != loss.value(X))
    np.testing.assert_allclose(loss.gradient(x), exact.gradient(X), rtol=1e-4, atol=1e-4)
    assert gs.check_loss(loss).ok


# ---- smoothness


@pytest.mark.parametrize("norm", [2, 1])
@pytest.mark.parametrize("given", GIVEN[::3])
def test_smoothness_bounds_hessians(norm, given):
    loss, rng = make(**given), np.random.default_rng(2)
    sizes = np.zeros(M)
    for scale in (0.0, 0.5, 2.0, 8.0, 30.0):
        for _ in range(20):
            hessian = loss.hessian(scale * rng.normal(size=(M, P)))
            of_point = np.linalg.norm(hessian, 2, axis=(1, 2)) if norm == 2 else np.abs(hessian).max(axis=(1, 2))
            sizes = np.maximum(sizes, of_point)
    assert np.all(sizes <= loss.smoothness(norm))
    assert np.all(sizes >= loss.smoothness(norm) / 20)


def test_smoothness_is_attained_by_two_rows_of_opposite_features():
    """The covariance of two rows with weights 1/2: half their distance, squared, for each event."""
    loss = Cox([[0.0, 1.0], [3.0, 5.0]], [1.0, 2.0], [1, 0], sample_weight=[2.0, 2.0])
    hessian = loss.hessian(np.zeros((1, 2)))[0]
    assert loss.smoothness(2)[0] == pytest.approx(np.linalg.norm(hessian, 2)) == pytest.approx(2 * 25 / 4)
    assert loss.smoothness(1)[0] == pytest.approx(np.abs(hessian).max()) == pytest.approx(2 * 16 / 4)


# ---- rows, agents and strata


def test_agents_take_blocks_or_splits():
    order = np.concatenate(SPLITS)
    bounds = np.cumsum([len(own) for own in SPLITS])[:-1]
    wanted = make(sample_weight=WEIGHTS, strata=STRATA).value(X)
    masks = [own == SITE for own in range(M)]
    np.testing.assert_allclose(make(sample_weight=WEIGHTS, strata=STRATA, splits=masks).value(X), wanted, rtol=1e-13)
    moved = Cox(
        ROWS[order],
        TIME[order],
        EVENT[order],
        sample_weight=WEIGHTS[order],
        strata=STRATA[order],
        splits=np.split(np.arange(N), bounds),
    )
    np.testing.assert_allclose(moved.value(X), wanted, rtol=1e-13)
    blocks = np.array_split(np.arange(N), 3)
    np.testing.assert_allclose(
        make(splits=None, agents=3).value(X[:3]), [naive(x, own) for x, own in zip(X[:3], blocks, strict=True)]
    )
    assert make(splits=None).m == 1


def test_strata_of_one_agent_are_as_good_as_agents():
    one, many = make(splits=None, strata=SITE), make()
    x = X[:1]
    np.testing.assert_allclose(one.value(x)[0], many.value(at_all(x[0])).sum(), rtol=1e-13)
    np.testing.assert_allclose(one.hessian(x)[0], many.hessian(at_all(x[0])).sum(axis=0), rtol=1e-11)
    assert one.value(x)[0] != pytest.approx(make(splits=None).value(x)[0], rel=1e-2)


def test_take_and_stack():
    loss = make(sample_weight=WEIGHTS, strata=STRATA)
    loss.smoothness(2)
    for chosen in ([2], [3, 0], [1, 1, 2]):
        part, x = loss.take(chosen), X[chosen]
        assert part.m == len(chosen)
        for found, wanted in zip(part.derivatives(x), loss.derivatives(X), strict=True):
            np.testing.assert_allclose(found, wanted[chosen], rtol=1e-12)
        for norm in (1, 2):
            np.testing.assert_allclose(part.compute_smoothness(norm), loss.smoothness(norm)[chosen], rtol=1e-12)
        np.testing.assert_allclose(part.column_squares(), loss.column_squares()[chosen], rtol=1e-12)
        for found, i in zip(part.score_residuals(x), chosen, strict=True):
            np.testing.assert_allclose(found, loss.score_residuals(X)[i], rtol=1e-10, atol=1e-12)
        for found, i in zip(part.baseline(x, "b"), chosen, strict=True):
            np.testing.assert_allclose(found, loss.baseline(X, "b")[i], rtol=1e-12)
        assert part.take([0]).value(x[:1])[0] == pytest.approx(loss.value(X)[chosen[0]], rel=1e-13)
    other = LeastSquares(ROWS, TIME)
    mixed = stack([loss, other])
    np.testing.assert_allclose(mixed.value(X[[0, 1, 2, 3, 0]]), [*loss.value(X), other.value(X[:1])[0]], rtol=1e-13)


def test_sparse_features_and_frames():
    wanted = make().derivatives(X)
    for found, expected in zip(make(sp.csc_matrix(ROWS)).derivatives(X), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"dose": ROWS[:, 0], "age": ROWS[:, 1], "sex": ROWS[:, 2], "t": TIME, "dead": EVENT})
    loss = make(table[["dose", "age", "sex"]], table["t"], table["dead"], strata=pandas.Series(STRATA))
    assert loss.feature_names == loss.take([1]).feature_names == ["dose", "age", "sex"]
    np.testing.assert_array_equal(loss.value(X), make(strata=STRATA).value(X))


def test_a_row_of_weight_0_is_left_out():
    """It is not one of the tied events, either."""
    weights = WEIGHTS * (RNG.random(N) < 0.7)
    kept = np.flatnonzero(weights)
    splits = [np.flatnonzero(SITE[kept] == i) for i in range(M)]
    given = {"features": ROWS[kept], "time": TIME[kept], "event": EVENT[kept], "splits": splits}
    some = make(**given, sample_weight=WEIGHTS[kept])
    loss = make(sample_weight=weights)
    np.testing.assert_array_equal(loss.value(X), some.value(X))
    np.testing.assert_array_equal(loss.smoothness(), some.smoothness())
    for own, found, wanted in zip(SPLITS, loss.score_residuals(X), some.score_residuals(X), strict=True):
        np.testing.assert_array_equal(found[weights[own] > 0], wanted)
        assert not found[weights[own] == 0].any()


def test_agents_without_events_have_zero():
    loss = make(event=EVENT & (SITE != 1))
    value, gradient, hessian = loss.derivatives(X)
    for found in (value, gradient, hessian, loss.smoothness(2), loss.smoothness(1), loss.column_squares()):
        assert [bool(np.any(own)) for own in found] == [True, False, True, True]
    assert loss.take([1]).value(X[:1]) == 0
    assert not loss.score_residuals(X)[1].any()
    assert [len(times) for times, _ in loss.baseline(X)][1] == 0
    assert gs.check_loss(loss).ok
    nothing = make(event=np.zeros(N))
    assert not np.any(nothing.derivatives(X)[2])
    assert gs.check_loss(nothing).ok


def test_column_squares_are_of_features_less_their_mean():
    loss = make(event=np.ones(N), splits=None, strata=SITE)
    wanted = sum(((ROWS[own] - ROWS[own].mean(axis=0)) ** 2).sum(axis=0) for own in SPLITS)
    np.testing.assert_allclose(loss.column_squares(), wanted[None], rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"time": -TIME}, r"time must not be negative; got -\d.*; count it from"),
        ({"time": TIME[:4]}, "time must be 1-D with one entry per row of features, 160 in all"),
        ({"time": np.where(EVENT, TIME, np.inf)}, "time must be finite"),
        ({"event": EVENT + 1}, r"event must be 0 or 1, or a boolean; got \[2.*\]; map events to 1"),
        ({"event": EVENT * 0.5}, r"event must be 0 or 1, or a boolean; got \[0.5\]"),
        ({"event": EVENT[:, None]}, "event must be 1-D"),
        ({"event": np.where(EVENT, "dead", "alive")}, "event must hold real numbers.*map events to 1"),
        ({"sample_weight": -WEIGHTS}, "sample_weight must not be negative"),
        ({"sample_weight": WEIGHTS[1:]}, "sample_weight must be 1-D"),
        ({"strata": STRATA[1:]}, r"strata must be 1-D with one label per row of features, 160.*got shape \(159,\)"),
        ({"strata": np.where(EVENT, np.nan, 1.0)}, "strata must have no missing labels; got [0-9]+ of them"),
        ({"strata": [1, "a"] * (N // 2)}, None),
        ({"strata": np.array([1, "a"] * (N // 2), dtype=object)}, "labels in strata must be of one type; got int, str"),
        ({"features": ROWS[:, 0]}, "features must be 2-D"),
        ({"agents": 2}, "give agents or splits, not both"),
        ({"splits": [[0, 1], [1, 2]]}, "a row must occur once in splits"),
    ],
)
def test_bad_input(given, message):
    if message is None:  # NumPy makes text of a list of both
        assert make(**given).m == M
        return
    with pytest.raises(InputError, match=message):
        make(**given)


def test_a_stratum_must_be_there():
    with pytest.raises(InputError, match="stratum needs a loss with strata; got 'a'; leave it out"):
        make().baseline(X, "a")
    for wrong in (None, "z"):
        with pytest.raises(InputError, match=r"stratum must be one of the 3 labels in strata; .* stratum='a'"):
            make(strata=STRATA).baseline(X, wrong)


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_arrays_of_other_libraries_are_refused(library):
    module = pytest.importorskip(library)
    with pytest.raises(InputError, match=r"features of Cox must be NumPy's.*got .*; convert them to NumPy"):
        make(module.asarray(ROWS.astype(np.float32)))


# ---- residuals and baseline


@pytest.mark.parametrize("given", GIVEN)
def test_score_residuals_are_derivatives_with_respect_to_weights(given):
    """Ties included, which lifelines and statsmodels leave out."""
    given = {"sample_weight": np.ones(N)} | given
    loss, w = make(**given), given["sample_weight"]
    found = loss.score_residuals(X)
    np.testing.assert_allclose([own.sum(axis=0) for own in found], -loss.gradient(X), rtol=1e-9, atol=1e-9)
    for i in range(M):
        for place in (0, 3, 8, 11, 20):
            move = 1e-5 * (np.arange(N) == SPLITS[i][place])
            ends = [make(**given | {"sample_weight": w + sign * move}).gradient(X)[i] for sign in (1, -1)]
            slope = w[SPLITS[i][place]] * (ends[1] - ends[0]) / 2e-5
            np.testing.assert_allclose(found[i][place], slope, rtol=1e-6, atol=1e-7)


def test_baseline_of_a_known_case():
    loss = Cox([[0.0], [np.log(2)], [0.0]], [2.0, 1.0, 3.0], [1, 1, 0])
    ((times, hazard),) = loss.baseline(np.ones((1, 1)))
    assert times.tolist() == [1.0, 2.0]
    np.testing.assert_allclose(hazard, [1 / 4, 1 / 4 + 1 / 2], rtol=1e-14)


def test_baseline_of_a_stratum():
    loss = make(sample_weight=WEIGHTS, strata=STRATA)
    for label in "abc":
        alone = make(sample_weight=WEIGHTS, splits=[own[STRATA[own] == label] for own in SPLITS])
        for found, wanted in zip(loss.baseline(X, label), alone.baseline(X), strict=True):
            np.testing.assert_array_equal(found[0], wanted[0])
            np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12)
    assert np.isinf(loss.baseline(-1000 * np.abs(X), "a")[0][1]).any()  # of a row of zeros, far from the data


# ---- other libraries


def phreg(time=TIME, strata=SITE):
    module = pytest.importorskip("statsmodels.duration.hazard_regression")
    return module.PHReg(time, ROWS, status=EVENT.astype(int), ties="efron", strata=strata)


def lifelines_fit(time=TIME, weights=None, robust=False):
    pandas, lifelines = pytest.importorskip("pandas"), pytest.importorskip("lifelines")
    weights = np.ones(N) if weights is None else weights
    table = pandas.DataFrame(ROWS, columns=["dose", "age", "sex"]).assign(t=time, e=EVENT, site=SITE, w=weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weights that are no integers, and outdated calls
        fitter = lifelines.CoxPHFitter()
        precise = {"precision": 1e-12}
        return fitter.fit(table, "t", "e", strata=["site"], weights_col="w", robust=robust, fit_options=precise)


@pytest.mark.parametrize("strata", [SITE, STRATA])
def test_statsmodels_has_the_same_derivatives(strata):
    model = phreg(strata=strata)
    labels = np.unique(strata)
    loss = make(splits=[strata == label for label in labels])
    for x in (np.zeros(P), *X):
        value, gradient, hessian = (each.sum(axis=0) for each in loss.derivatives(at_all(x, loss.m)))
        assert value == pytest.approx(-model.loglike(x), rel=1e-11)
        np.testing.assert_allclose(gradient, -model.score(x), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(hessian, -model.hessian(x), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("strata", [None, STRATA])
def test_newton_finds_the_coefficients_of_statsmodels(strata):
    # Strata within agents are strata of both.
    both = SITE if strata is None else np.strings.add(SITE.astype(str), strata)
    solution = gs.solve(gs.Problem(make(strata=strata)), gs.Graph.ring(M), gs.Newton(), stop=STOP)
    assert solution.status is gs.Status.CONVERGED
    np.testing.assert_allclose(solution.x, at_all(phreg(strata=both).fit(disp=0).params), atol=1e-8)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_lifelines_has_the_same_likelihood_and_baseline(weights):
    fit = lifelines_fit(weights=weights)
    loss, x = make(sample_weight=weights), at_all(fit.params_.values)
    value, gradient, hessian = (each.sum(axis=0) for each in loss.derivatives(x))
    assert value == pytest.approx(-fit.log_likelihood_, rel=1e-12)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.inv(hessian), fit.variance_matrix_, rtol=1e-10)
    of_means = np.exp(ROWS.mean(axis=0) @ fit.params_.values)
    for i, (times, hazards) in enumerate(loss.baseline(x)):
        wanted = fit.baseline_cumulative_hazard_[i]
        assert times.tolist() == sorted(set(TIME[SPLITS[i]][EVENT[SPLITS[i]]]))
        np.testing.assert_allclose(of_means * hazards, wanted.loc[times], rtol=1e-10)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_lifelines_has_the_same_robust_errors_without_ties(weights):
    fit = lifelines_fit(EXACT, weights, robust=True)
    loss, x = make(time=EXACT, sample_weight=weights), at_all(fit.params_.values)
    changes = np.concatenate(loss.score_residuals(x)) @ np.linalg.inv(loss.hessian(x).sum(axis=0))
    np.testing.assert_allclose(np.sqrt(np.diag(changes.T @ changes)), fit.standard_errors_, rtol=1e-10)


def test_statsmodels_has_the_same_score_residuals_without_ties():
    model = phreg(EXACT, strata=None)
    (found,) = make(time=EXACT, splits=None).score_residuals(X[:1])
    wanted = np.nan_to_num(model.score_residuals(X[0]))  # NaN for rows that are never at risk
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)

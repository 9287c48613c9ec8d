"""Releases: noise as another library has it, a sensitivity that answers keep, and an attack that fails as promised."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import gradslide as gs
from gradslide.regression import load_model
from gradslide.regression.release import (
    Ledger,
    calibrated,
    epsilon_of,
    gradient_bound,
    noisy,
    public_scales,
    sensitivity_of,
)

REGRESSION = gs.Regression(
    family="logistic",
    label="ill",
    features=["age", "dose", "stage"],
    categorical={"stage": ["I", "II", "III"]},
    classes=["no", "yes"],
    bounds={"age": (18, 90), "dose": (0.0, 5.0)},
    ridge=2.0,
    minimum_rows=1,
    for_release=True,
)


def patients(n=60, seed=0):
    rng = np.random.default_rng(seed)
    table = {
        "site": rng.choice(["a", "b", "c"], n),
        "age": rng.uniform(10, 95, n),
        "dose": rng.uniform(0, 6, n),
        "stage": rng.choice(["I", "II", "III"], n),
    }
    table["ill"] = np.where(0.05 * (table["age"] - 50) + rng.logistic(size=n) > 0, "yes", "no")
    return table


def scaled(model):
    """The coefficients in columns that are scaled by their bounds, the intercept first."""
    centre, scale = public_scales(model.schema)
    blocks = model.coefficients.reshape(-1, len(centre) + 1)
    return np.column_stack([blocks[:, 0] + blocks[:, 1:] @ centre, blocks[:, 1:] * scale]).ravel()


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (0.5, 1e-3), (5.0, 1e-8), (10.0, 1e-6)])
def test_the_noise_is_what_another_library_says(epsilon, delta):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    release = calibrated(epsilon, delta, 3.0, "replace")
    theirs = pld.from_gaussian_mechanism(release.sigma, sensitivity=3.0, value_discretization_interval=1e-4)
    assert theirs.get_epsilon_for_delta(delta) == pytest.approx(epsilon, rel=1e-4)
    assert epsilon_of(release.mu, delta) == pytest.approx(epsilon, rel=1e-9)
    # With a hundredth less noise the promise is broken.
    less = pld.from_gaussian_mechanism(0.99 * release.sigma, sensitivity=3.0, value_discretization_interval=1e-4)
    assert less.get_epsilon_for_delta(delta) > epsilon * (1 + 1e-3)


def test_several_releases_add_up_as_another_library_says(tmp_path):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    ledger = Ledger(tmp_path / "ledger.jsonl")
    composed = None
    for epsilon in (1.0, 0.5, 2.0):
        release = calibrated(epsilon, 1e-6, 1.0, "replace")
        ledger.add(release, "run", "schema", None)
        one = pld.from_gaussian_mechanism(release.sigma, value_discretization_interval=1e-4)
        composed = one if composed is None else composed.compose(one)
    assert ledger.spent(1e-5) == pytest.approx(composed.get_epsilon_for_delta(1e-5), rel=1e-4)
    assert [each.epsilon for each in ledger.entries()] == [1.0, 0.5, 2.0]


@pytest.mark.parametrize("classes", [("no", "yes"), ("no", "yes", "maybe")])
@pytest.mark.parametrize("adjacency", ["replace", "add"])
def test_answers_of_neighbouring_data_differ_by_at_most_the_sensitivity(adjacency, classes):
    """Also where the other row is as extreme as bounds allow, and there are few rows."""
    regression = replace(REGRESSION, classes=classes)
    table = patients(12)
    table["ill"] = np.array(classes)[np.arange(12) % len(classes)]
    first = gs.fit(regression, table).model
    bound, _ = sensitivity_of(gradient_bound(first.schema), regression.ridge, adjacency)
    largest = 0.0
    for age in (-1e9, 1e9):
        for stage in ("I", "III"):
            for ill in classes:
                row = {"site": "a", "age": age, "dose": 1e9, "stage": stage, "ill": ill}
                if adjacency == "replace":
                    other = {name: np.append(each[1:], row[name]) for name, each in table.items()}
                else:
                    other = {name: np.append(each, row[name]) for name, each in table.items()}
                distance = np.linalg.norm(scaled(gs.fit(regression, other).model) - scaled(first))
                largest = max(largest, float(distance))
    assert largest <= bound
    assert largest > bound / 40


def test_the_gap_is_part_of_the_sensitivity():
    """A point whose objective is tau above the optimum is no further from it than was reckoned with."""
    gradient, strength = 2.0, 0.7
    sensitivity, tau = sensitivity_of(gradient, strength, "replace")
    assert sensitivity == pytest.approx(2 * gradient / strength + 2 * math.sqrt(2 * tau / strength))
    assert tau > 0


def test_an_attack_succeeds_no_more_often_than_promised():
    """The best test between two neighbouring data sets, from many releases of both."""
    epsilon, delta, count = 1.0, 1e-2, 60_000
    table = patients(12)
    row = {"site": "a", "age": 1e9, "dose": 1e9, "stage": "III", "ill": "yes"}
    other = {name: np.append(each[1:], row[name]) for name, each in table.items()}
    solutions = [gs.fit(REGRESSION, each) for each in (table, other)]
    one, two = (scaled(each.model) for each in solutions)
    promise = solutions[0].release(epsilon, delta).release
    direction = (two - one) / np.linalg.norm(two - one)

    def found(sigma, apart):
        """A lower bound on epsilon with 99.9 % confidence, from the attacker's hits and false alarms."""
        source = random.Random(7)
        middle = apart / 2
        noise = noisy(np.zeros(2 * count), sigma, source)
        threshold = middle + sigma**2 / apart * epsilon
        alarms = np.array([np.sum(noise[:count] > threshold), np.sum(noise[count:] + apart > threshold)])
        false, hits = alarms
        low = stats.beta.ppf(1e-3, hits, count - hits + 1) if hits else 0.0
        high = stats.beta.ppf(1 - 1e-3, false + 1, count - false)
        return math.log(max(low - delta, 1e-12) / high)

    apart = float(np.abs((two - one) @ direction))
    assert apart <= promise.sensitivity
    assert found(promise.sigma, apart) <= epsilon
    # Answers as far apart as the proof allows: the attack comes close to the promise, and breaks less noise.
    assert epsilon / 2 <= found(promise.sigma, promise.sensitivity) <= epsilon
    assert found(promise.sigma / 2, promise.sensitivity) > epsilon


def test_a_release_says_what_was_promised_and_nothing_else(tmp_path):
    solution = gs.fit(REGRESSION, patients(), sites="site")
    released = solution.release(2.0, 1e-4, ledger=tmp_path / "ledger.jsonl")
    card = released.to_dict()
    assert card["release"]["epsilon"] == 2.0
    assert card["statistics"] == card["evaluation"] == {}
    assert card["covariance"]["matrix"] is None
    assert set(card["provenance"]) == {"run", "status", "message", "schema", "keys", "gradslide", "optimality", "gap"}
    assert card["provenance"]["gap"] is None
    assert [each["mean"] for each in card["columns"]] == [54.0, 2.5, 0.0, 0.0]
    assert "Released:" in released.summary()
    assert "has no standard errors" in released.summary()
    again = load_model(released.save(tmp_path / "released.json"))
    assert again.release == released.release
    rows = {"age": [20.0, 80.0], "dose": [1.0, 1.0], "stage": ["I", "II"]}
    assert np.array_equal(again.predict(rows), released.predict(rows))
    # Other noise each time, on a grid that the exact coefficients are not on.
    other = solution.release(2.0, 1e-4)
    assert not np.any(other.coefficients == released.coefficients)
    grid = 2.0 ** math.floor(math.log2(released.release.sigma * 2.0**-16))
    assert np.allclose(scaled(released) / grid, np.round(scaled(released) / grid), atol=1e-4)


def test_noise_has_its_deviation():
    values = noisy(np.full(20_000, 3.0), 0.5, random.Random(1))
    assert abs(values.mean() - 3) < 4 * 0.5 / math.sqrt(20_000)
    assert values.std() == pytest.approx(0.5, rel=0.03)


def test_entries_beyond_the_bounds_are_clipped():
    table = patients()
    clipped = {**table, "age": np.clip(table["age"], 18, 90), "dose": np.clip(table["dose"], 0, 5)}
    one, two = (gs.fit(REGRESSION, each, sites="site").model for each in (table, clipped))
    assert np.array_equal(one.coefficients, two.coefficients)
    rows = {"age": [1e6], "dose": [-3.0], "stage": ["II"]}
    assert np.array_equal(one.predict(rows), one.predict({"age": [90.0], "dose": [0.0], "stage": ["II"]}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "poisson", "classes": None}, "must have family logistic, whose gradients are bounded; got poisson"),
        ({"ridge": 0.0}, "must have a ridge above 0; got 0.0"),
        ({"intercept": False}, "must have an intercept"),
        ({"features": None}, "must have stated features"),
        ({"classes": None}, "must have stated classes"),
        ({"weight": "w"}, "must have no weights; got w"),
        ({"penalty_factors": {"age": 0.0}}, "must have no penalty factors"),
        ({"standardize": True}, "must have no penalty factors and no standardized columns"),
        ({"missing": "mean"}, 'must have missing "refuse" or "drop"; got mean'),
        ({"categorical": ["stage"]}, "must have stated levels"),
        ({"bounds": {"age": (90, 18)}}, "the bounds of age must be two numbers, the lower one first"),
        ({"bounds": {"age": 18}}, "the bounds of age must be two numbers"),
    ],
)
def test_premises_of_the_declaration(changes, message):
    with pytest.raises(gs.InputError, match=message):
        replace(REGRESSION, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bounds": {"age": (18, 90)}}, "must have bounds of all numbers; got none of 'dose'"),
        ({"categorical": {}}, "must have stated levels; got none of 'stage'"),
        (
            {"bounds": {"age": (18, 90), "dose": (0, 5), "stage": (0, 1)}},
            "columns in bounds must be features of numbers",
        ),
    ],
)
def test_premises_of_the_table(changes, message):
    with pytest.raises(gs.InputError, match=message):
        gs.fit(replace(REGRESSION, **changes), patients())


def test_premises_of_the_answer(tmp_path):
    solution = gs.fit(REGRESSION, patients(), sites="site")
    plain = gs.fit(replace(REGRESSION, for_release=False), patients(), sites="site")
    problem = gs.Problem(gs.losses.Quadratic(np.ones((3, 1, 1)), np.ones((3, 1))))
    refused = [
        (plain.release, "a release needs a regression that was declared for it"),
        (gs.solve(problem, gs.Graph.ring(3)).release, "a release needs a fitted regression"),
        (solution.release(1.0, 1e-5).released, "a model is released once"),
        (
            replace(solution.model, provenance={**solution.model.provenance, "gap": 1.0}).released,
            "a release needs a certified gap of at most .*; got 1",
        ),
        (
            replace(solution.model, provenance={**solution.model.provenance, "gap": None}).released,
            "a release needs a certified gap of at most .*; got none",
        ),
        (
            replace(solution.model, provenance={**solution.model.provenance, "status": "STALLED"}).released,
            "a release needs a model at its optimum",
        ),
    ]
    for release, message in refused:
        with pytest.raises(gs.InputError, match=message):
            release(1.0, 1e-5)
    for given, message in (((0.0, 1e-5), "epsilon must be >= 1e-06"), ((1.0, 0.0), "delta must be >= 1e-100")):
        with pytest.raises(gs.InputError, match=message):
            solution.release(*given)
    with pytest.raises(gs.InputError, match="a budget needs a ledger"):
        solution.release(1.0, 1e-5, budget=(2.0, 1e-5))
    with pytest.raises(gs.InputError, match="adjacency must be one of the known names"):
        solution.release(1.0, 1e-5, adjacency="swap")


def test_a_class_without_rows_is_no_reason_to_refuse():
    """Data sets of which only one has a row of that class must not be told apart by an error."""
    table = patients(20)
    table["ill"] = np.array(["no"] * 20)
    released = gs.fit(REGRESSION, table, sites="site").release(1.0, 1e-5)
    assert np.all(np.isfinite(released.coefficients))


def test_a_budget_is_kept(tmp_path):
    solution, ledger = gs.fit(REGRESSION, patients(), sites="site"), tmp_path / "ledger.jsonl"
    given = {"ledger": ledger, "budget": (2.0, 1e-5)}
    solution.release(1.0, 1e-5, **given)
    solution.release(1.0, 1e-5, **given)
    with pytest.raises(gs.InputError, match="all releases together must keep epsilon = 2 at delta = 1e-05"):
        solution.release(1.6, 1e-5, **given)
    with pytest.raises(gs.InputError, match="all releases in a ledger must have the same adjacency"):
        solution.release(0.1, 1e-5, adjacency="add", **given)
    assert len(Ledger(ledger).entries()) == 2
    ledger.write_text(ledger.read_text() + "lost\n")
    with pytest.raises(gs.InputError, match="a ledger must hold one release per line"):
        solution.release(0.1, 1e-5, **given)

"""The comparisons on a game, on transport and on a portfolio run as a user would run them; what they print holds."""

import re

import numpy as np
import pytest
from example_runs import load, run

GAME_ROW = r"\s+(?P<wins>\d\.\d+)\s+(?P<loses>\d\.\d+)$"
TRANSPORT_ROW = r"\s+(?P<above>[\d.]+)%(?P<failed>  not reached)?$"
PORTFOLIO_ROW = r"\s+(?P<growth>[\d.]+)%\s+(?P<exposure>\S+)$"


def table(printed: str, tail: str) -> dict[str, dict[str, float]]:
    """The rows of the table by label: counts, seconds and what else there is, as numbers."""
    pattern = r"^(?P<label>\S.*?\S)\s\s+(?:(?P<gradients>\d+)\s+(?P<products>\d+)?)?\s*(?P<seconds>\d+\.\d+)" + tail
    rows = {}
    for found in re.finditer(pattern, printed, flags=re.MULTILINE):
        values = found.groupdict()
        label = values.pop("label")
        rows[label] = {name: value for name, text in values.items() if (value := _number(text)) is not None}
    assert rows
    return rows


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return 1.0


def cheapest(rows: dict[str, dict[str, float]], unit: str) -> float:
    return min(row[unit] for row in rows.values() if unit in row)


def named(printed: str, unit: str) -> str:
    found = re.search(rf"^fewest {unit}: (.*)$", printed, flags=re.MULTILINE)
    assert found is not None
    return found.group(1)


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    return run("comparisons/matrix_game", tmp_path_factory.mktemp("game"))


@pytest.fixture(scope="module")
def transport(tmp_path_factory):
    return run("comparisons/optimal_transport", tmp_path_factory.mktemp("transport"))


@pytest.fixture(scope="module")
def portfolio(tmp_path_factory):
    return run("comparisons/portfolio", tmp_path_factory.mktemp("portfolio"))


@pytest.mark.parametrize(
    ("example", "tail", "baselines"),
    [
        pytest.param("game", GAME_ROW, {"linprog"}, marks=pytest.mark.slow),
        pytest.param("transport", TRANSPORT_ROW, {"linprog"}, marks=pytest.mark.slow),
        ("portfolio", PORTFOLIO_ROW, {"SLSQP"}),
    ],
    ids=["game", "transport", "portfolio"],
)
def test_the_table_has_every_method_and_names_the_one_that_is_cheapest(example, tail, baselines, request):
    printed = request.getfixturevalue(example)
    rows = table(printed, tail)
    methods = {label.rpartition(", ")[0] for label in rows} - {""}
    assert {"PDS", "Condat-Vu", "Condat-Vu, best ratio"} <= methods
    assert baselines <= rows.keys()
    reached = {label: row for label, row in rows.items() if "failed" not in row}
    for unit, column in (("gradients", "gradients"), ("operator products", "products"), ("seconds", "seconds")):
        best = [label for label, row in reached.items() if row.get(column) == cheapest(reached, column)]
        winner = named(printed, unit)
        # Rounded alike in print, one may still have been faster.
        assert winner in best or winner == f"{len(best)} alike"


@pytest.mark.slow
def test_both_sides_of_the_game_are_guaranteed_what_the_table_says(game):
    rows = table(game, GAME_ROW)
    value = rows.pop("linprog")
    assert value["wins"] == value["loses"]
    for row in rows.values():
        assert row["wins"] <= value["wins"] <= row["loses"]
        assert row["loses"] - row["wins"] <= 0.01 + 1e-4


@pytest.mark.slow
def test_the_gap_of_the_game_stays_below_the_bound_of_the_theorem(game):
    assert "the default R is the theory's: True" in game
    assert "the theorem's bound is 2 max|A_ij| sqrt(log n log k)/T: True" in game
    assert "no gap exceeds it: True" in game


@pytest.mark.slow
def test_entropy_takes_fewer_products_than_euclid_in_the_game(game):
    rows = table(game, GAME_ROW)
    assert rows["PDS, entropy"]["products"] < rows["PDS, Euclid"]["products"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "tail"), [("game", GAME_ROW), ("transport", TRANSPORT_ROW)], ids=["game", "transport"]
)
def test_one_gradient_is_enough_for_a_linear_loss(example, tail, request):
    rows = table(request.getfixturevalue(example), tail)
    pds = [row for label, row in rows.items() if label.startswith("PDS")]
    assert min(row["gradients"] for row in pds) == 1
    assert max(row["gradients"] for row in pds) <= 2


@pytest.mark.slow
def test_the_least_cost_of_transport_lies_between_what_prices_and_plan_prove(transport):
    found = re.search(r"prices: (\S+) <= least cost <= (\S+); it is (\S+)", transport)
    assert found is not None
    lower, upper, cost = map(float, found.groups())
    assert 0.9 * cost < lower <= cost <= upper < 1.02 * cost


@pytest.mark.slow
def test_plans_that_are_said_to_be_near_the_least_cost_are(transport):
    rows = table(transport, TRANSPORT_ROW)
    assert all((row["above"] <= 1) != ("failed" in row) for row in rows.values())
    assert "failed" not in rows["PDS, R of theory, row simplices"]


def test_multipliers_are_the_prices_of_neutrality(portfolio):
    prices = re.findall(r"worth (\S+)% a year by its multiplier, (\S+)% by moving the exposure", portfolio)
    assert len(prices) == 3
    largest = max(abs(float(moved)) for _, moved in prices)
    for multiplier, moved in prices:
        assert float(multiplier) == pytest.approx(float(moved), abs=0.02 * largest)


def test_every_portfolio_is_neutral_and_grows_as_fast_as_the_exact_one(portfolio):
    rows = table(portfolio, PORTFOLIO_ROW)
    exact = rows.pop("SLSQP")
    for row in rows.values():
        assert row["exposure"] <= 1e-3
        assert row["growth"] == pytest.approx(exact["growth"], abs=0.03)


def test_the_portfolio_takes_fewer_gradients_with_pds(portfolio):
    rows = table(portfolio, PORTFOLIO_ROW)
    for geometry in ("Euclid", "entropy"):
        assert rows[f"PDS, {geometry}"]["gradients"] < rows[f"Condat-Vu, best ratio, {geometry}"]["gradients"]


@pytest.mark.parametrize("norm", [1, 2])
def test_growth_is_as_smooth_on_the_simplex_as_the_portfolio_says(norm):
    example = load("comparisons/portfolio")
    _, _, stocks, _ = example.monthly_returns()
    loss = example.growth_loss(stocks)
    smoothness = float(loss.smoothness(norm)[0])
    rng = np.random.default_rng(0)
    needed = 0.0
    for spread in np.geomspace(0.01, 10, 200):
        x, y = (rng.dirichlet(np.full(loss.d, spread))[None] for _ in range(2))
        turned = (loss.gradient(x) - loss.gradient(y))[0] @ (x - y)[0]
        needed = max(needed, turned / np.linalg.norm((x - y)[0], ord=norm) ** 2)
    assert smoothness / 4 < needed <= smoothness


def test_a_rounded_plan_has_exactly_the_marginals_asked_for():
    rng = np.random.default_rng(0)
    p, q, plan = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(7)), rng.exponential(size=(5, 7)) / 20
    plan[0] = 0
    rounded = load("comparisons/optimal_transport").rounded(plan, p, q)
    assert rounded.min() >= 0
    assert rounded.sum(axis=1) == pytest.approx(p, abs=1e-15)
    assert rounded.sum(axis=0) == pytest.approx(q, abs=1e-15)
    assert plan.sum(axis=1) != pytest.approx(p, abs=1e-3)

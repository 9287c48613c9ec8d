"""Every example runs as a user would run it, draws its picture, and what it claims holds."""

import re

import cvxpy as cp
import numpy as np
import pytest
from example_runs import EXAMPLES, load, run
from scipy.sparse.linalg import svds

PAGE = EXAMPLES.parent / "docs" / "examples.md"
SIX = ["hospitals_regression", "sensor_field", "power_flow", "barycenter", "click_prediction", "deblurring"]


def numbers(pattern, printed):
    """What the groups of the pattern caught, as numbers."""
    found = re.search(pattern, printed)
    assert found is not None, printed
    return [float(group.replace(",", "")) for group in found.groups()]


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.stem)
def test_examples_import_public_modules_only(path):
    imported = re.findall(r"^\s*(?:from|import) (gradslide[\w.]*)", path.read_text(encoding="utf-8"), re.MULTILINE)
    keys_and_places = {"gradslide.network.peers.keys", "gradslide.network.peers.neighbour"}
    assert set(imported) <= {"gradslide", "gradslide.regression", "gradslide.sklearn", *keys_and_places}


@pytest.mark.parametrize("name", SIX)
def test_six_examples_are_short_and_say_who_needs_them(name):
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 80
    docstring = load(name).__doc__
    first, second = docstring.split("\n\n")[:2]
    assert first.endswith(".")
    assert second.startswith("For ")
    assert f"    python examples/{name}.py [PICTURE.png]\n" in docstring


@pytest.mark.parametrize("name", SIX)
def test_six_examples_are_on_their_page_with_a_picture(name):
    page = PAGE.read_text(encoding="utf-8")
    assert f"python examples/{name}.py" in page
    assert f"(img/example_{name}.png)" in page
    assert (PAGE.parent / "img" / f"example_{name}.png").stat().st_size < 200_000


@pytest.mark.slow
def test_streaming(tmp_path):
    printed = run("streaming", tmp_path)
    assert "the same answer to the last bit: True" in printed
    assert "times as fast" in printed


def test_hospitals_find_the_model_of_one_place_with_weights_that_make_sense(tmp_path):
    printed = run("hospitals_regression", tmp_path)
    together, pooled = numbers(r"wrong, of 269: (\d+) together, (\d+) in one place", printed)
    assert together == pooled
    alone = [int(count) for count in re.search(r"alone((?: \d+)+)", printed)[1].split()]
    assert len(alone) == 10
    assert np.median(alone) > together
    least, most, apart = numbers(r"weights from (\S+) to (\S+), (\S+) from one place", printed)
    assert 0 <= least <= most <= 2
    assert apart < 1e-4
    assert numbers(r"without the signs: \d+ wrong, weights from (\S+) to", printed)[0] < 0, "the signs are not idle"


def test_no_patient_is_at_two_hospitals_or_in_the_test():
    example = load("hospitals_regression")
    _, labels, sites, test = example.patients(example.load_breast_cancer(), np.random.default_rng(0))
    assert sorted(np.concatenate([*sites, test])) == list(range(569))
    assert [len(rows) for rows in sites] == example.PATIENTS
    shares = [np.mean(labels[rows] > 0) for rows in sites]
    assert min(shares) < 0.2
    assert max(shares) > 0.8


@pytest.mark.slow
def test_sensors_agree_on_the_best_field_that_no_sensor_rules_out(tmp_path):
    printed = run("sensor_field", tmp_path)
    before, missed = numbers(r"thermometers alone +(\S+) +\S+ +(\d+)", printed)
    after, left = numbers(r"with every sensor's set +(\S+) +\S+ +(\d+)", printed)
    assert left == 0 < missed
    assert after < 0.7 * before

    example = load("sensor_field")
    places = example.Halton(2, seed=0).random(example.SENSORS)
    problem, _, a, b = example.field_problem(places, np.random.default_rng(1))
    # The loss is quadratic: its slopes at 0 and at the unit vectors say all.
    slope, *slopes = (problem.loss.gradient(np.tile(e, (example.SENSORS, 1))).sum(axis=0) for e in np.eye(37, 36, -1))
    hessian = cp.psd_wrap(np.array(slopes) - slope + example.SENSORS * example.RIDGE * np.eye(36))
    x = cp.Variable(36)
    cp.Problem(cp.Minimize(cp.quad_form(x, hessian) / 2 + slope @ x), [a @ x <= b]).solve(solver="CLARABEL")
    field = example.USUAL + example.bumps(example.PIXELS) @ x.value
    assert np.sqrt(np.mean((field - example.truth(example.PIXELS)) ** 2)) == pytest.approx(after, abs=0.02)


@pytest.mark.slow
def test_power_flow_prices_are_those_of_clarabel_and_pay_for_the_lines(tmp_path):
    printed = run("power_flow", tmp_path)
    paid, earned, rent = numbers(r"loads pay (\S+) \$/h, generators get (\S+), the full lines the other (\S+)", printed)
    assert paid - earned == pytest.approx(rent, abs=0.2)
    example, comparison = load("power_flow"), load("comparisons/power_flow")
    solution, prices, flows = example.dispatch(example.LIMITS)
    exact = comparison.Grid(example.LIMITS).exact()
    assert prices == pytest.approx(-exact.z[:14], abs=1e-4)
    assert np.ptp(prices) > 5
    assert solution.history[-1].objective == pytest.approx(comparison.BASE * exact.cost, rel=1e-5)
    for line, most in example.LIMITS.items():
        assert abs(flows[example.PAIRS.index(line)]) == pytest.approx(most, rel=1e-4)
    assert rent == pytest.approx(abs(solution.dual[1:]) @ list(example.LIMITS.values()), rel=1e-3)
    _, one_price, _ = example.dispatch({})
    assert np.ptp(one_price) == 0


@pytest.mark.slow
def test_the_barycenter_is_nearer_than_the_plain_average(tmp_path):
    printed = run("barycenter", tmp_path)
    total, plain = numbers(r"plain average +sums to (\S+); .* costs (\S+) on", printed)
    of_ours, ours = numbers(r"barycenter +sums to (\S+); .* costs (\S+) on", printed)
    assert total == of_ours == 1
    assert ours < 0.7 * plain
    assert "CONVERGED" in printed


def test_the_cost_of_transport_has_its_gradient_and_lies_above_its_tangents():
    example, rng = load("barycenter"), np.random.default_rng(0)
    owned = example.digits(rng)
    pixels = example.SIDE**2
    assert owned.sum(axis=1) == pytest.approx(1)
    near, far = (rng.dirichlet(np.ones(pixels), size=example.AGENTS) for _ in range(2))
    value, gradient = example.transport(near, owned)
    steps = [example.transport(near + step * (far - near), owned)[0] for step in (-1e-3, 1e-3)]
    slope = np.sum(gradient * (far - near), axis=1)
    assert (steps[1] - steps[0]) / 2e-3 == pytest.approx(slope, abs=5e-5)
    assert np.all(example.transport(far, owned)[0] > value + slope)
    outside = 2 * near - far
    assert outside.min() < 0
    value, gradient = example.transport(outside, owned)
    assert np.all(example.transport(far, owned)[0] > value + np.sum(gradient * (far - outside), axis=1))


@pytest.mark.slow
def test_clicks_are_predicted_better_together_than_alone(tmp_path):
    printed = run("click_prediction", tmp_path)
    names = ["mean click rate", "each site alone", "all together", "the truth"]
    rows = [numbers(rf"{name} +log loss (\S+), area under the curve (\S+)", printed) for name in names]
    losses, areas = np.transpose(rows)
    assert np.all(np.diff(losses) < 0)
    assert np.all(np.diff(areas) > 0)
    assert losses[1] - losses[2] > 0.005
    assert "samples=4000" in printed


def test_clicks_come_with_the_chances_that_they_are_said_to_have():
    """Clicks less their expectation, in units of its spread: of size 1, over many groups."""
    example, scores = load("click_prediction"), []
    for seed in range(30):
        features, labels, chances = example.impressions(seed % example.SITES, 2_000, np.random.default_rng([9, seed]))
        assert np.all(features.sum(axis=1) == 6)
        for group in np.array_split(np.argsort(chances), 4):
            spread = np.sqrt(np.sum(chances[group] * (1 - chances[group])))
            scores.append(np.sum((labels[group] > 0) - chances[group]) / spread)
    assert abs(np.mean(scores)) < 0.4
    assert 0.8 < np.std(scores) < 1.2
    batch, _ = next(example.stream(3, np.random.default_rng(1)))
    assert batch.shape == (50, example.BUCKETS)


@pytest.mark.slow
def test_deblurring_restores_and_proves_it(tmp_path):
    printed = run("deblurring", tmp_path)
    before, after = numbers(r"blurred, with noise +(\S+) dB\nrestored +(\S+) dB", printed)
    assert after > before + 3
    objective, gap = numbers(r"objective=(\S+), gap=(\S+), kkt=", printed)
    assert gap <= 0.01 * objective


@pytest.mark.slow
def test_the_blur_is_its_own_transpose_and_slopes_are_as_steep_as_said():
    example, rng = load("deblurring"), np.random.default_rng(0)
    x, z = rng.normal(size=(2, 3 * example.PIXELS))
    assert z @ example.blur(x) == pytest.approx(x @ example.blur(z), rel=1e-10)
    assert example.blur(np.ones_like(x)) == pytest.approx(1)
    A = example.slopes()
    assert 2.8 < svds(A, k=1, return_singular_vectors=False)[0] <= np.sqrt(8)
    image, (down, right) = x.reshape(example.SHAPE), np.zeros((2, *example.SHAPE))
    down[:-1], right[:, :-1] = np.diff(image, axis=0), np.diff(image, axis=1)
    problem = example.restoration(np.zeros_like(x))
    total_variation = example.LAM * np.sqrt(np.sum(down**2 + right**2, axis=2)).sum()
    assert problem.duals.conjugate(problem.product(x[None])) == pytest.approx(total_variation)

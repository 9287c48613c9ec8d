"""What a picture of runs shows: error where the optimum is known, else a certified gap, else the objective."""

import numpy as np
import pytest
from baselines import small_problem

import gradslide as gs
from gradslide.results.plots import plot_histories

pytest.importorskip("matplotlib")


def solved(domain=None):
    return gs.solve(small_problem(2, domain), gs.Graph.ring(7), stop=gs.Stop(iterations=12))


def run(domain=None):
    return solved(domain).history


def shown(figure):
    """Label, scale and numbers of the upper left panel, and the label of the one below."""
    above, below = figure.axes[0], figure.axes[2]
    return above.get_ylabel(), above.get_yscale(), above.lines[0].get_ydata(), below.get_ylabel()


def test_where_no_optimum_is_known_the_certified_gap_is_shown():
    history = run(gs.domains.L2Ball(1.0))
    label, scale, numbers, below = shown(plot_histories({"a": history, "b": history}))
    assert (label, scale) == ("certified gap at the mean", "log")
    np.testing.assert_array_equal(numbers, [record.gap for record in history])
    assert below.startswith("disagreement")


def test_where_one_run_has_no_gap_objectives_are_shown():
    histories = {"bounded": run(gs.domains.L2Ball(1.0)), "free": run()}
    label, scale, numbers, _ = shown(plot_histories(histories))
    assert (label, scale) == ("objective", "linear")
    np.testing.assert_array_equal(numbers, [record.objective for record in histories["bounded"]])


def test_a_known_optimum_comes_first():
    history = run(gs.domains.L2Ball(1.0))
    least = min(record.objective for record in history)
    label, scale, numbers, _ = shown(plot_histories({"a": history}, optimum=least - 1))
    assert (label, scale) == ("objective error at the mean", "log")
    np.testing.assert_allclose(numbers, [record.objective - least + 1 for record in history])


def test_a_loss_without_values_has_an_empty_panel():
    loss = gs.losses.Custom(gradient=lambda x: x - np.arange(21.0).reshape(7, 3), smoothness=1.0, agents=7, dimension=3)
    history = gs.solve(gs.Problem(loss), gs.Graph.ring(7), gs.NIDS(), stop=gs.Stop(iterations=3)).history
    assert np.all(np.isnan(shown(plot_histories({"": history}))[2]))


def test_a_solution_is_plotted_against_gradients_and_rounds():
    solution = solved(gs.domains.L2Ball(1.0))
    figure = solution.plot()
    below = figure.axes[2:]
    assert [axis.get_xlabel() for axis in below] == ["gradients per agent", "communication rounds"]
    np.testing.assert_array_equal(below[1].lines[0].get_xdata(), [record.rounds for record in solution.history])
    assert figure.get_suptitle() == f"Auto: {solution.status.value}"


def test_a_saddle_point_solution_is_plotted_against_products():
    A, b = np.ones((1, 3)), np.ones(1)
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.zeros(3)), A, b)
    solution = gs.solve(problem, stop=gs.Stop(iterations=5))
    assert solution.plot().axes[3].get_xlabel() == "products with A and its transpose"


def test_a_graph_is_coloured_by_degree_or_by_what_is_given():
    graph = gs.Graph.star(5)
    nodes, bar = graph.plot().axes
    np.testing.assert_array_equal(nodes.collections[-1].get_array(), graph.degrees)
    assert bar.get_ylabel() == "degree"
    nodes, bar = graph.plot(np.arange(5.0), label="distance", title="how far").axes
    np.testing.assert_array_equal(nodes.collections[-1].get_array(), np.arange(5.0))
    assert (bar.get_ylabel(), nodes.get_title()) == ("distance", "how far")


def test_a_graph_needs_one_value_for_each_agent():
    with pytest.raises(gs.InputError, match=r"one value for each agent; got shape \(4,\); give 5 numbers"):
        gs.Graph.star(5).plot(np.arange(4.0))


@pytest.mark.parametrize(("backend", "is_open"), [("agg", True), ("module://matplotlib_inline.backend_inline", False)])
def test_a_notebook_shows_a_figure_once(backend, is_open, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "get_backend", lambda: backend)
    figure = gs.Graph.ring(4).plot()
    assert plt.fignum_exists(figure.number) is is_open


def test_what_cannot_be_plotted_against_is_told():
    with pytest.raises(gs.InputError, match="what to plot against must be one of the known names; got 'nonsense'"):
        run().plot(against="nonsense")


def test_every_column_of_a_history_can_be_plotted_against():
    assert run().plot(against="floats_sent").axes[1].get_xlabel() == "floats_sent"

"""What a picture of runs shows: error where the optimum is known, else a certified gap, else the objective."""

import numpy as np
import pytest
from rivals import small_problem

import gradslide as gs
from gradslide.experiments.plots import plot_histories

pytest.importorskip("matplotlib")


def run(domain=None):
    return gs.solve(small_problem(2, domain), gs.Graph.ring(7), stop=gs.Stop(iterations=12)).history


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

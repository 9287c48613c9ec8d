"""What a notebook shows for a solution, a history and a graph."""

from xml.etree import ElementTree

import numpy as np
from baselines import small_problem

import gradslide as gs


def cells(thing) -> list[list[str]]:
    """The rows of the table, which must be well formed."""
    table = ElementTree.fromstring(thing._repr_html_())
    return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


def solved(**keywords):
    return gs.solve(small_problem(2, gs.domains.L2Ball(1.0)), gs.Graph.ring(7), **keywords)


def test_a_solution_shows_its_table():
    solution = solved()
    shown = dict(cells(solution))
    assert shown["status"] == "converged: every target was reached"
    assert shown["gradients"] == str(solution.costs.gradients)
    assert shown["rounds"] == str(solution.costs.rounds)
    assert float(shown["gap (certified)"]) == float(f"{solution.history[-1].gap:.6g}")
    assert shown["optimum"] == f"between {solution.certificate.lower:.6g} and {solution.certificate.upper:.6g}"


def test_what_makes_an_answer_doubtful_is_shown_and_escaped():
    import dataclasses

    doubtful = dataclasses.replace(solved(stop=gs.Stop(iterations=2)), warnings=("a < b & c",))
    assert dict(cells(doubtful))["warning 1"] == "a < b & c"


def test_a_saddle_point_solution_shows_products():
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.zeros(3)), np.ones((1, 3)), np.ones(1))
    solution = gs.solve(problem, stop=gs.Stop(iterations=5))
    shown = dict(cells(solution))
    assert shown["operator products"] == str(solution.costs.operator_products)
    assert "rounds" not in shown


def test_a_point_that_misses_its_constraints_bounds_nothing_from_above():
    box = gs.domains.Box(-5.0, 5.0)
    loss = gs.losses.Quadratic(np.eye(3), np.arange(1.0, 4.0))
    problem = gs.LinearlyConstrained(loss, np.ones((1, 3)), np.ones(1), domain=box)
    solution = gs.solve(problem, method=gs.CondatVu(), stop=gs.Stop(iterations=3))
    assert solution.certificate.residual > 0
    assert dict(cells(solution))["optimum"].startswith(f"at least {solution.certificate.lower:.6g}; ")


def test_a_history_shows_its_first_and_last_records():
    history = solved(stop=gs.Stop(iterations=30)).history
    head, *rows = cells(history)
    assert "samples" not in head
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5", "...", "26", "27", "28", "29", "30"]
    assert len(cells(history[:10])) == 11
    assert cells(gs.History([])) == [[]]


def test_a_graph_shows_its_facts():
    shown = cells(gs.Graph.ring(7))
    assert ["links", "7"] in shown
    assert [name for name, _ in shown if name.startswith("diameter")] == ["diameter"]

"""The page of a fitted regression: verdict, coefficients, what left the site, and names on the map."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from browser import browser
from report_contents import HOSTILE, LINK, bare, network
from report_pages import js, opened, plot, section, titles, wait

import gradslide as gs
from gradslide.experiments.files import as_json
from gradslide.report.agent import agent_document
from gradslide.report.run import run_document

__all__ = ["browser"]


def made(rows=120):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"site": np.repeat(["a", "b", "c"], rows // 3), "age": rng.uniform(20, 90, rows).round(1)})
    table["stage"], table["x_intercept"] = rng.choice(["I", "II", "III"], rows), rng.normal(size=rows)
    level = 0.03 * (table["age"] - 55) + table["stage"].map({"I": -0.5, "II": 0.0, "III": 0.5})
    table["ill"] = np.where(rng.random(rows) < 1 / (1 + np.exp(-level)), "yes", "no")
    table["visits"] = rng.poisson(np.exp(0.3 * level) * 3)
    return table


def fitted(**given):
    given = {"family": "logistic", "label": "ill", "features": ["age", "stage", "x_intercept"], **given}
    return gs.fit(gs.Regression(**given), made(), sites="site")


TRAFFIC = {"links of the network": (6, 256), "sums and answers": (72, 2152)}


def result_of(solution, **changed):
    """What result.json of an agent has: of agent 1 on a path of three."""
    traffic = {kind: {"messages": k, "numbers": n, "bytes": 8 * n} for kind, (k, n) in TRAFFIC.items()}
    result = {
        "name": "north",
        "run": "trial",
        "agent": 1,
        "agents": 3,
        "edges": [[0, 1], [1, 2]],
        "neighbours": ["east", "west"],
        "names": {1: "north", 0: "east", 2: "west"},
        "secure_sums": False,
        "traffic": traffic,
        "x": solution.x[0].tolist(),
        **solution.to_dict(),
        **changed,
    }
    return json.loads(as_json(result))


@pytest.fixture(scope="module")
def solution():
    return fitted(units={"age": "years"})


@pytest.fixture(scope="module")
def document(solution):
    return agent_document(result_of(solution))


def table_of(document, title):
    (found,) = (table for table in document["models"] if table["title"] == title)
    return found


def cells(table):
    """The rows of a table by their first cells."""
    return {row[0]: dict(zip(table["columns"][1:], row[1:], strict=True)) for row in table["rows"]}


def test_the_verdict_says_whether_the_model_is_at_its_optimum(document):
    text = "The logistic regression of 120 rows at 3 sites is at its optimum."
    assert document["verdict"] == [{"text": text, "holds": True}]


@pytest.mark.parametrize("status", [gs.Status.ITERATION_LIMIT, gs.Status.UNBOUNDED, gs.Status.INTERRUPTED])
def test_the_verdict_of_an_unsound_model_does_not_hold(solution, status):
    result = result_of(solution)
    result["model"]["provenance"] |= {"status": status.name, "message": status.value}
    result["model"]["warnings"] = ["three rows fit badly"]
    first, doubt = agent_document(result)["verdict"]
    assert first["holds"] is False
    assert first["text"].endswith(f" is at its optimum. It is not: {status.value}.")
    assert (doubt["holds"], doubt["word"], doubt["text"]) == (None, "doubtful", "three rows fit badly.")


def test_coefficients_have_errors_intervals_and_ratios(document, solution):
    table, model = table_of(document, "Coefficients"), solution.model
    found, tests = cells(table), model.tests
    assert list(found) == ["intercept", "age (per years)", "stage=II", "stage=III", "x_intercept"]
    heads = ["coefficient", "standard error", "z", "p", "95 % from", "to", "odds ratio", "95 % from", "to"]
    assert table["columns"] == ["", *heads]
    numbers = np.array([row[1:7] for row in table["rows"]], dtype=float)
    columns = [model.coefficients, tests.errors, tests.statistics, tests.p_values, tests.low, tests.high]
    np.testing.assert_allclose(numbers.T, columns, rtol=1e-12)
    ratios = [row[7:] for row in table["rows"]]
    assert ratios[0] == [None] * 3, "an intercept has none"
    np.testing.assert_allclose(np.array(ratios[1:], dtype=float), np.exp(numbers[1:, [0, 4, 5]]))
    assert table["notes"] == ["reference level of stage: I", "coefficients are of the log-odds of yes"]


def test_other_families_have_other_columns():
    linear = cells(table_of(agent_document(result_of(fitted(family="linear", label="visits"))), "Coefficients"))
    assert list(linear["intercept"]) == ["coefficient", "standard error", "t", "p", "95 % from", "to"]
    poisson = table_of(
        agent_document(result_of(fitted(family="poisson", label="visits", confidence=0.9))), "Coefficients"
    )
    assert poisson["columns"][5:] == ["90 % from", "to", "rate ratio", "90 % from", "to"]
    several = agent_document(result_of(fitted(label="stage", features=["age"])))
    table = table_of(several, "Coefficients")
    assert [row[0] for row in table["rows"]] == ["II: intercept", "II: age", "III: intercept", "III: age"]
    assert table["rows"][2][7:] == [None] * 3
    assert table["rows"][3][7] == pytest.approx(math.exp(table["rows"][3][1]))
    penalized = table_of(agent_document(result_of(fitted(ridge=1.0))), "Coefficients")
    assert penalized["columns"] == ["", "coefficient"]
    assert any("penal" in note for note in penalized["notes"])


def test_how_well_it_predicts_all_rows_and_those_of_this_site(document, solution):
    table = table_of(document, "How well it predicts")
    assert table["columns"] == ["", "rows of the fit", *(f"{site}, rows of the fit" for site in "abc")]
    found = cells(table)
    for name, value in solution.model.evaluation["fit"].items():
        assert found[name]["rows of the fit"] == pytest.approx(value)
        assert found[name]["b, rows of the fit"] == pytest.approx(solution.model.by_site["b"]["fit"][name])
    assert cells(table_of(document, "The fit"))["AIC"]["value"] == solution.model.statistics["AIC"]


def test_what_left_the_site_is_shown_with_the_model(document, solution):
    table = table_of(document, "What left this site")
    assert table["columns"] == ["kind", "messages", "numbers", "bytes"]
    assert table["rows"] == [[kind, messages, numbers, 8 * numbers] for kind, (messages, numbers) in TRAFFIC.items()]
    assert any("no row of the table is ever sent" in note for note in table["notes"])
    assert any("not masked" in note for note in table["notes"])
    assert document["tables"] == []
    masked = table_of(agent_document(result_of(solution, secure_sums=True)), "What left this site")
    assert any("uniformly random" in note for note in masked["notes"])
    assert not any("not masked" in note for note in masked["notes"])


def test_an_agent_without_a_table_shows_what_left_it_too():
    loss = gs.losses.LeastSquares(np.eye(6), np.arange(6.0), agents=3)
    solution = gs.solve(gs.Problem(loss, gs.domains.L2Ball(9.0)), gs.Graph.path(3))
    document = agent_document(result_of(solution))
    assert document["verdict"] == document["models"] == []
    (table,) = document["tables"]
    assert table["title"] == "What left this site"
    assert not any("row of the table" in note for note in table["notes"])


def test_results_of_former_releases_still_have_a_page(solution):
    result = result_of(solution)
    for name in ("names", "secure_sums", "traffic", "model"):
        del result[name]
    document = agent_document(result)
    assert document["verdict"] == document["models"] == document["tables"] == []
    assert document["networks"][0]["names"] is None


def test_neighbours_have_their_names_on_the_map(document):
    assert document["networks"][0]["names"] == {"0": "east", "1": "north", "2": "west"}


def test_models_of_several_networks_are_told_apart(solution):
    run = {**result_of(solution), "objective_error": None, "local_error": None, "bound_at_mean": None}
    run |= {"bound": None, "bounds_along": None}
    results = {"name": "two", "title": "", "problem": "", "optimum": None}
    runs = [{**run, "network": name} for name in ("ring", "star")]
    document = run_document({**results, "runs": runs})
    assert [each["text"].split(":")[0] for each in document["verdict"]] == ["ring", "star"]
    titles = [table["title"] for table in document["models"]]
    assert {"Coefficients (ring)", "Coefficients (star)", "The fit (star)"} <= set(titles)


# In the browser


SECTIONS = [
    "Verdict",
    "Model",
    "Summary",
    "Convergence",
    "Network",
    "Certificate",
    "Settings and versions",
    "Downloads",
]


def test_the_page_of_a_site_opens_with_the_verdict(browser, document):
    opened(browser, document)
    assert titles(browser) == SECTIONS
    verdict = section(browser, "Verdict")
    assert verdict.text.splitlines()[-1] == f"✓ holds {document['verdict'][0]['text']}"
    captions = [each.text for each in section(browser, "Model").find_elements("tag name", "caption")]
    assert captions == ["Coefficients", "How well it predicts", "The fit", "What left this site"]
    shown = section(browser, "Model").find_element("tag name", "table")
    heads = [each.text for each in shown.find_elements("css selector", "thead th")]
    assert heads == table_of(document, "Coefficients")["columns"]
    age = [each.text for each in shown.find_elements("css selector", "tbody tr:nth-child(2) > *")]
    low, high = (table_of(document, "Coefficients")["rows"][1][k] for k in (5, 6))
    assert (age[0], float(age[5]), float(age[6])) == (
        "age (per years)",
        pytest.approx(low, 1e-3),
        pytest.approx(high, 1e-3),
    )
    drawn = section(browser, "Network")
    labels = js(browser, "[...arguments[0].querySelectorAll('.textpoint')].map((each) => each.textContent)", drawn)
    assert sorted(labels) == ["east", "north", "west"]
    drawn.find_element("tag name", "summary").click()
    names = wait(lambda: [each.text for each in drawn.find_elements("css selector", "tbody th")])
    assert names == ["east", "north", "west"]
    assert browser.get_log("browser") == []


def test_an_unsound_model_is_marked_and_so_is_what_is_doubtful(browser, solution):
    result = result_of(solution)
    result["model"]["provenance"] |= {"status": "STALLED", "message": gs.Status.STALLED.value}
    result["model"]["warnings"] = ["three rows fit badly"]
    opened(browser, agent_document(result))
    first, second = (each.text for each in section(browser, "Verdict").find_elements("tag name", "li"))
    assert first.startswith(
        "✗ DOES NOT HOLD The logistic regression of 120 rows at 3 sites is at its optimum. It is not:"
    )
    assert second.endswith("doubtful three rows fit badly.")
    assert "not comparable" not in second


@pytest.mark.slow
def test_hostile_names_on_the_map_are_shown_as_text(browser):
    drawing = {**network("sites", 4, frames=1), "names": {"0": HOSTILE, "1": LINK, "2": "<b>bold</b>", "3": "%{x}"}}
    opened(browser, bare(networks=[drawing]))
    assert js(browser, "window.hacked") is None
    shown = section(browser, "Network")
    labels = js(browser, "[...arguments[0].querySelectorAll('.textpoint')].map((each) => each.textContent)", shown)
    assert {"<b>bold</b>", "%{x}", LINK} <= set(labels)
    assert not js(browser, "[...document.querySelectorAll('.plot a')].length")
    assert "&lt;b&gt;" in plot(browser, shown)["data"][1]["text"][2]

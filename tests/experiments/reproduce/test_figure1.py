"""Three networks drawn, with spectrum and diameter."""

import json

import numpy as np
import pytest

import gradslide as gs
from gradslide._support.plotting import pyplot
from gradslide.experiments.reproduce import figure1
from gradslide.experiments.reproduce.paper import Data
from gradslide.experiments.reproduce.report import write_report
from gradslide.experiments.reproduce.runs import Bench
from gradslide.graphs.display import draw_network, plot_graph

pytest.importorskip("matplotlib")

SMALL = {"A": (3, 14), "B": (5, 20)}
KINDS = [{"name": name, "max_degree": degree, "edges": edges} for name, (degree, edges) in SMALL.items()]


@pytest.fixture
def bench(tmp_path):
    return Bench(folder=tmp_path, data=Data("misfire", "", None))


def test_nine_networks_with_the_wanted_degrees_edges_and_spectrum(bench):
    (table,) = figure1.reproduce(bench).tables
    rows = [dict(zip(table.headings, row, strict=True)) for row in table.rows]
    assert [(row["network"], row["seed"]) for row in rows] == [(g, s) for g in ("G1", "G2", "G3") for s in (1, 2, 3)]
    assert [(row["maximum degree"], row["edges"]) for row in rows[::3]] == [(4, 150), (9, 235), (20, 640)]
    graph = gs.Graph.random(100, max_degree=9, edges=235, seed=2)
    values = np.linalg.eigvalsh(graph.laplacian.toarray())
    assert rows[4]["l2"] == pytest.approx(values[1])
    assert rows[4]["chi"] == pytest.approx(values[-1] / values[1])
    assert rows[4]["mean degree"] == pytest.approx(4.7)
    assert rows[4]["diameter"] == graph.diameter


def test_everything_is_written(bench, tmp_path):
    report = figure1.reproduce(bench, {"agents": 10, "seeds": [1, 2], "network": KINDS})
    written = {path.name for path in write_report(report, tmp_path)}
    assert written == {"figure1.md", "figure1.json", "figure1.csv", "figure1.png", "figure1.svg"}
    assert "not published" in report.text
    assert "never connected" in report.text
    assert [each["m"] for each in json.loads(report.to_json())["found"]] == [10] * 4


def test_panels_show_degrees_and_eigenvalues():
    graphs = {name: gs.Graph.random(10, degree, seed=1, edges=edges) for name, (degree, edges) in SMALL.items()}
    figure = figure1.plot_networks(graphs)
    networks, spectra = figure.axes[:2], figure.axes[2:4]
    assert networks[0].get_title() == f"A: 14 edges, diameter {graphs['A'].diameter}"
    for axis, graph in zip(networks, graphs.values(), strict=True):
        nodes = axis.collections[-1]
        np.testing.assert_array_equal(nodes.get_array(), graph.degrees)
        assert nodes.get_clim() == (1, 5), "one scale of colours for all"
    for axis, graph in zip(spectra, graphs.values(), strict=True):
        np.testing.assert_allclose(axis.collections[0].get_offsets()[:, 1], graph.spectrum()[1:])
        assert f"{graph.condition:.3g}" in axis.get_title()
    pyplot().close(figure)


def test_one_network_is_drawn_by_the_same_function():
    graph = gs.Graph.star(6)
    figure = plot_graph(graph, title="a star")
    assert figure.axes[0].get_title() == "a star"
    np.testing.assert_array_equal(figure.axes[0].collections[-1].get_array(), graph.degrees)
    with pytest.raises(ValueError, match="2,000 agents"):
        draw_network(figure.axes[0], gs.Graph.ring(2001))
    pyplot().close(figure)

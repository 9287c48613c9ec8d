"""Contents for report pages, made of plain JSON: what a run over three networks would hand over, and odd ones."""

import copy
from typing import Any

import networkx as nx
import numpy as np

import gradslide as gs

# Of the page of a run.
SECTIONS = [
    "Summary",
    "Convergence",
    "Network",
    "Costs per agent",
    "Certificate",
    "Settings and versions",
    "Downloads",
]
AGENTS = 100
FRAMES = 40
POINTS = 200
Content = dict[str, Any]


def content(*documents: Content, live: bool = False, finished: bool = True) -> Content:
    return {
        "format": 1,
        "made": "2026-11-16T08:00:00Z",
        "versions": {"gradslide": gs.__version__, "numpy": np.__version__, "python": "3.12.4"},
        "state": {"live": live, "finished": finished},
        "documents": list(documents),
    }


def bare(name: str = "bare", **parts: Any) -> Content:
    """A document with nothing in it but the given parts."""
    lists = ("verdict", "models", "statements", "curves", "networks", "agents", "certificates", "settings", "tables")
    empty: Content = {part: [] for part in (*lists, "images", "files")}
    heads = {"kind": "run", "name": name, "title": f"The run {name}", "subtitle": "", "summary": None}
    return {**heads, **empty, "axes": {"x": [], "y": []}, **parts}


def table(title: str, columns: list[str], *rows: list[Any]) -> Content:
    return {"title": title, "columns": columns, "rows": list(rows), "notes": []}


def axes() -> Content:
    return {
        "x": [
            {"key": "gradients", "label": "gradients per agent"},
            {"key": "rounds", "label": "communication rounds"},
            {"key": "seconds", "label": "wall clock, seconds"},
            {"key": "iteration", "label": "outer iteration"},
        ],
        "y": [
            {
                "key": "error",
                "label": "objective error at the mean",
                "log": True,
                "bound": "bound",
                "bound_label": "what Theorem 1 promises",
            },
            {"key": "disagreement", "label": "disagreement", "log": True, "bound": None, "bound_label": ""},
            {"key": "objective", "label": "objective at the mean", "log": False, "bound": None, "bound_label": ""},
        ],
    }


def curve(name: str, rate: float, points: int = POINTS, seed: int = 0) -> Content:
    """Errors that fall like 1/k^2 with some noise, below a bound."""
    steps = np.arange(1, points + 1)
    noise = np.exp(0.2 * np.random.default_rng(seed).standard_normal(points))
    error = 3e4 * rate / steps**2 * noise
    columns = {
        "iteration": steps,
        "gradients": 2 * steps,
        "rounds": np.round(10 * rate * steps),
        "seconds": 0.013 * rate * steps,
        "error": error,
        "bound": 2e6 * rate / (steps * (steps + 1)),
        "disagreement": 0.3 * rate * np.exp(-0.04 * steps) * noise,
        "objective": 6130.2 + error,
    }
    return {"name": name, "columns": {key: values.tolist() for key, values in columns.items()}}


def network(name: str, degree: int, seed: int = 1, frames: int = FRAMES) -> Content:
    graph = gs.Graph.random(AGENTS, max_degree=degree, seed=seed)
    drawing = nx.Graph(graph.edges.tolist())
    places = nx.spring_layout(drawing, seed=seed, iterations=60)
    spread = np.random.default_rng(seed).lognormal(sigma=0.7, size=AGENTS)
    iterations = np.linspace(1, POINTS, frames).round().astype(int)
    distances = [(spread * 3 * np.exp(-0.05 * iteration)).tolist() for iteration in iterations]
    return {
        "name": name,
        "facts": {"agents": AGENTS, "links": len(graph.edges), "diameter": graph.diameter, "largest degree": degree},
        "positions": [[float(value) for value in places[agent]] for agent in range(AGENTS)],
        "edges": graph.edges.tolist(),
        "degrees": graph.degrees.tolist(),
        "frames": {"iterations": iterations.tolist(), "distances": distances},
        "note": "",
    }


def costs(name: str, degrees: list[int]) -> Content:
    columns = {
        "agent": list(range(len(degrees))),
        "gradients": [400] * len(degrees),
        "rounds": [2000] * len(degrees),
        "floats sent": [8 * 2000 * degree for degree in degrees],
    }
    return {"name": name, "columns": columns, "notes": ["floats sent: to all neighbours, control rounds included"]}


def run() -> Content:
    """A run of 100 agents over three networks, with 40 frames each."""
    names = {"max degree 4": 4, "max degree 9": 9, "max degree 20": 20}
    networks = [network(name, degree) for name, degree in names.items()]
    rows = [
        [name, 400, 2000 // (index + 1), 213, 6130.8 + 0.01 * index, 0.476 / (index + 1), 7.76e-4, 1.9e-5, "converged"]
        for index, name in enumerate(names)
    ]
    certificate = {"lower bound": 6130.31, "upper bound": 6130.79, "gap": 0.476, "relative gap": 7.76e-5}
    settings = {
        "method": "PDS(L=38.4, R=1.0, coupling='laplacian')",
        "stop": "Stop(gap=0.001, disagreement=0.01)",
        "loss": "Logistic, 20,000 rows",
        "domain": "L2Ball(50.0)",
        "seed": 1,
        "compiled": True,
    }
    return bare(
        "misfire",
        title="Engine misfire detection: 100 agents, logistic regression in a ball, three networks",
        subtitle="20,000 rows of engine data, simulated, until the objective is within 0.1 % of the optimum.",
        summary={
            "title": "One accuracy on three networks",
            "columns": [
                "network",
                "gradients",
                "rounds",
                "control",
                "objective",
                "gap",
                "disagreement",
                "|Ax|",
                "status",
            ],
            "rows": rows,
            "notes": ["gradients and communication rounds: per agent; disagreement: max |x_i - mean|"],
        },
        curves=[
            {"name": "", "curves": [curve(name, 4.0 / (i + 1), seed=i) for i, name in enumerate(names)]},
        ],
        axes=axes(),
        networks=networks,
        agents=[costs(drawn["name"], drawn["degrees"]) for drawn in networks],
        certificates=[
            {
                "name": name,
                "facts": certificate,
                "holds": name != "max degree 20",
                "text": "The objective at the mean is no further than the gap above the optimum.",
                "warnings": ["rounding may have moved the last digit"] if name == "max degree 20" else [],
            }
            for name in names
        ],
        settings=[{"name": name, "facts": settings} for name in names],
        files=[{"name": "results.json", "type": "application/json", "text": '{"objective": 6130.8}'}],
    )


def reproduction() -> Content:
    """Statements, tables and a picture, and groups of curves; in one group a curve lacks a column."""
    dot = (
        "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSI5IiBoZWlnaHQ9IjkiLz4="
    )
    late = curve("NIDS", 2.0)
    del late["columns"]["disagreement"]
    return bare(
        "table-1",
        kind="reproduction",
        title="Table 1: gradients and rounds",
        statements=[
            {"text": "PDS takes the same gradients on all networks.", "holds": True},
            {"text": "DCS takes fewer rounds.", "holds": False},
            {"text": "The data set of the paper is not public.", "holds": None},
        ],
        curves=[
            {"name": "ijcnn1", "curves": [curve("PDS", 1.0), late]},
            {"name": "a9a", "curves": [curve("PDS", 3.0), curve("NIDS", 5.0)]},
        ],
        axes=axes(),
        tables=[
            table("Ours", ["method", "rounds", "reached"], ["PDS", 1984, True], ["DCS", None, False]),
            table("Theirs", ["method", "rounds"], ["PDS", 2000.5], ["DCS", 1.5e12]),
        ],
        images=[{"title": "The paper's figure", "source": dot, "text": "an empty picture"}],
    )


HOSTILE = """</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1"> & <b>bold</b>"""
LINK = '<a href="https://example.org/">click</a> %{x} $x$ =1+1, "quoted"'


def hostile() -> Content:
    """Every text of a run is HTML, or looks like a link or a template to Plotly."""
    made = copy.deepcopy(run())
    made.update(name=HOSTILE, title=HOSTILE, subtitle=HOSTILE)
    made["summary"]["columns"][1] = HOSTILE
    made["summary"]["rows"][0][0] = HOSTILE
    for part in ("networks", "agents", "certificates", "settings"):
        made[part][0]["name"] = HOSTILE
    made["curves"][0]["curves"][0]["name"] = LINK
    for axis in (made["axes"]["x"][0], made["axes"]["y"][0]):
        axis["label"] = LINK
    made["agents"][0]["columns"][LINK] = made["agents"][0]["columns"].pop("floats sent")
    made["settings"][0]["facts"] = {HOSTILE: HOSTILE}
    made["statements"] = [{"text": HOSTILE, "holds": True}]
    made["files"][0]["name"] = "<b>results</b>.json"
    return made

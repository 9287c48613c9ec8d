"""Runs under mpiexec, for tests: what is refused in several processes, and how. Argument: where to write it."""

import json
import sys
from pathlib import Path

import numpy as np

import gradslide as gs

graph = gs.Graph.ring(12)
network = gs.network.MPI(graph)
rng = np.random.default_rng(0)
loss = gs.losses.Logistic(rng.normal(size=(48, 3)), rng.choice([-1, 1], size=48), agents=12)
whole = gs.Problem(loss, gs.domains.L2Ball(1.0))
here = whole.take(network.agents)
radius = 1.0 + network.session.rank
own_sets = gs.Problem(here.loss, gs.domains.L2Ball(radius))

refused = {
    "condition": lambda: gs.network.Lossy(network, 0.1),
    "clock": lambda: gs.solve(here, network, clock=gs.Clock.wan()),
    "whole problem": lambda: gs.solve(whole, network),
    "too few agents": lambda: gs.network.MPI(gs.Graph.from_edges(1, [])),
    "own sets": lambda: gs.solve(own_sets, network, stop=gs.Stop(gap=1e-3)),
    "other method": lambda: gs.solve(here, network, gs.PDS() if network.session.rank == 0 else gs.NIDS()),
    "other stop": lambda: gs.solve(here, network, stop=gs.Stop(iterations=3 + network.session.rank)),
    "other graph": lambda: gs.network.MPI(graph if network.session.rank == 0 else gs.Graph.path(12)),
}
said = {}
assert bool(network.agree(np.array([[network.session.rank == 1]] * len(network.agents)), "max")[0])
for name, call in refused.items():
    try:
        call()
    except gs.InputError as error:
        said[name] = str(error)
if network.session.rank == 1:
    Path(sys.argv[1]).write_text(json.dumps(said))

"""Every name in the table of symbols exists in the code."""

import re
from pathlib import Path

import numpy as np
import pytest

import gradslide as gs
from gradslide.methods import exact_sums, lbfgs, newton
from gradslide.network.coupling import Coupling, Dual
from gradslide.oracles import Oracle

PAGE = (Path(__file__).parents[2] / "docs" / "notation.md").read_text(encoding="utf-8")
NAMES = re.findall(r"`(\w+)\.(\w+)(?:\([^`]*\))?`", PAGE)
SCHEDULE = gs.schedules.theorem_1(L=1.0, mu=0.1, A_norm=1.0, R=1.0)
SADDLE = gs.Saddle(gs.losses.Quadratic(np.eye(2), np.zeros(2)), np.eye(2))
THINGS = {
    "problem": SADDLE,
    "domain": SADDLE.domain,
    "graph": gs.Graph.ring(3),
    "schedule": SCHEDULE,
    "row": SCHEDULE.row(1),
    "record": gs.Record,
    "coupling": Coupling,
    "oracle": Oracle,
    "Dual": Dual,
    "Totals": exact_sums.Totals,
    "State": exact_sums.State,
    "Model": exact_sums.Model,
    "Curvature": newton.Curvature,
    "Memory": lbfgs.Memory,
    "Reference": gs.reference.Reference,
    "gs": gs,
    "guarantees": gs.guarantees,
    "schedules": gs.schedules,
}


@pytest.mark.parametrize(("thing", "name"), sorted(set(NAMES) - {("solution", "dual"), ("dual_bar", "s")}))
def test_every_name_exists(thing, name):
    there = THINGS[thing]
    assert hasattr(there, name) or name in getattr(there, "__dataclass_fields__", {})


def test_names_are_found():
    assert {("row", "lam"), ("guarantees", "pds"), ("domain", "prox")} <= set(NAMES)

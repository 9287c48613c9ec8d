"""Measure the peak memory of a solve beside the data, in arrays of agents x dimensions.

    python benchmarks/memory.py [--agents 500] [--dimension 1000] [--iterations 12] [--only AutoPDS]

The loss is |x_i - c_i|^2/2 with data c_i; it allocates only the gradients that it returns. The
network is random with maximum degree 4. "NumPy" is the peak that tracemalloc reports, which
includes all NumPy arrays. "resident" is the peak growth of the process (Linux only), including
compiled code and the C library. "records": metrics at every iteration, otherwise at the last one
only. Each figure comes from its own process, with compiled code loaded in advance; "first": not
loaded in advance. "own" and "sliding": other inner loops of AutoPDS. Takes two minutes.

Peaks are in arrays of 8 agents x dimensions bytes; the title says how many gigabytes that is, and
the data takes one more. With --only, the table has the one method in X = R^d, as for

    python benchmarks/memory.py --agents 100000 --dimension 1000 --only AutoPDS

whose arrays take 0.8 GB each. 25 of them and the data are 21 GB; it takes minutes.
"""

import json
import tracemalloc
from pathlib import Path

import numpy as np
from timing import begin, fresh, load_compiled, load_compiled_exchanges, parser, show

import gradslide as gs

METHODS = {
    "AutoPDS": lambda n: gs.AutoPDS(),
    "AutoPDS, ridge": lambda n: gs.AutoPDS(),
    "AutoPDS, exact sums": lambda n: gs.AutoPDS(agreement="exact"),
    "AutoPDS, own": lambda n: gs.AutoPDS(inner="own"),
    "AutoPDS, sliding": lambda n: gs.AutoPDS(inner="sliding"),
    "PDS, incidence": lambda n: gs.PDS(R=0.1),
    "PDS, laplacian": lambda n: gs.PDS(R=0.1, coupling="laplacian"),
    "SPDS": lambda n: gs.SPDS(N=n, R=0.1, c=0.25),
    "NIDS": lambda n: gs.NIDS(),
}
MU = {"AutoPDS, ridge": 0.1}
DOMAINS = {"free": gs.domains.Free, "ball": lambda: gs.domains.L2Ball(1.0)}
# Domain, whether metrics are recorded, whether compiled code is loaded in advance.
KINDS = {
    "free": ("free", False, True),
    "ball": ("ball", False, True),
    "ball, records": ("ball", True, True),
    "ball, first": ("ball", False, False),
}
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def problem(m: int, d: int, domain: str, mu: float = 0.0) -> gs.Problem:
    centres = np.random.default_rng(0).normal(size=(m, d))
    squares = np.einsum("ij,ij->i", centres, centres)

    def value(x: np.ndarray) -> np.ndarray:
        return (np.einsum("ij,ij->i", x, x) + squares) / 2 - np.einsum("ij,ij->i", x, centres)

    loss = gs.losses.Custom(
        gradient=lambda x: x - centres,
        value=value,
        smoothness=1.0,
        sample_gradient=lambda x, batch, streams: x - centres,
        agents=m,
        dimension=d,
    )
    return gs.Problem(loss, DOMAINS[domain](), mu)


def solve(name: str, domain: str, records: bool, m: int, d: int, n: int) -> dict[str, float]:
    """Return peaks in bytes."""
    given, graph = problem(m, d, domain, MU.get(name, 0.0)), gs.Graph.random(m, 4, seed=1)
    method = METHODS[name](n)
    before = resident_now()
    tracemalloc.start()
    solution = gs.solve(given, graph, method, stop=gs.Stop(iterations=n), record_every=1 if records else n)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(solution.x) == m
    return {"numpy": peak, "resident": resident_peak() - before}


def resident_now() -> float:
    """Return resident bytes, and reset the peak."""
    if not RESET.exists():
        return np.nan
    RESET.write_text("5")
    return _status("VmRSS")


def resident_peak() -> float:
    return _status("VmHWM") if RESET.exists() else np.nan


def _status(name: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return 1024 * float(line.split()[1])


def measure(name: str, kind: str, m: int, d: int, n: int) -> dict[str, float]:
    """Return the peaks of this process, in arrays of m x d."""
    domain, records, is_loaded = KINDS[kind]
    if is_loaded:
        load_compiled("laplacian" if "laplacian" in name else "incidence", DOMAINS[domain]())
        load_compiled_exchanges()
        solve(name, domain, records, 10, 5, n)
    return {unit: peak / (8 * m * d) for unit, peak in solve(name, domain, records, m, d, n).items()}


def row(name: str, kinds: list[str], m: int, d: int, n: int) -> list[str]:
    peaks = [fresh(__file__, "--one", json.dumps([name, kind, m, d, n])) for kind in kinds]
    return [name, *(f"{peak[unit]:.1f}" for peak in peaks for unit in ("numpy", "resident"))]


def main() -> None:
    given = parser(__doc__)
    given.add_argument("--agents", type=int, default=500)
    given.add_argument("--dimension", type=int, default=1000)
    given.add_argument("--iterations", type=int, default=12)
    given.add_argument("--only", choices=METHODS, help="one method, in X = R^d")
    chosen = begin(given, measure)
    size = (chosen.agents, chosen.dimension, chosen.iterations)
    kinds = ["free"] if chosen.only else list(KINDS)
    headings = ["peak in arrays", *(head for kind in kinds for head in (f"{kind}: NumPy", "resident"))]
    gigabytes = 8e-9 * chosen.agents * chosen.dimension
    title = "{:,} agents x {:,} dimensions, {} iterations; an array takes {:.3g} GB".format(*size, gigabytes)
    show(title, headings, [row(name, kinds, *size) for name in METHODS if chosen.only in (None, name)])


if __name__ == "__main__":
    main()

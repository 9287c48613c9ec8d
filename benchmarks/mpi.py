"""Time exchanges between MPI processes, relative to plain MPI calls, and the scaling of runs.

    python benchmarks/mpi.py

The script starts itself with the mpiexec of the Python environment. Times are medians.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import gradslide as gs

# Agents per process, numbers per agent.
EXCHANGES = [(50, 22), (500, 22), (500, 300), (5000, 22)]
REPEATS, BATCHES = 200, 15
# Number of agents in all (strong), or per process (weak).
SCALED = [("strong", 2000), ("weak", 1000)]


def seconds_of(call: Callable[[], object], comm) -> float:
    """Return the median over batches of the mean time of a call."""
    times = []
    for _ in range(BATCHES):
        comm.Barrier()
        started = time.perf_counter()
        for _ in range(REPEATS):
            call()
        times.append((time.perf_counter() - started) / REPEATS)
    return float(np.median(times))


def exchanges(comm) -> None:
    if comm.rank == 0:
        print(f"{comm.size} processes; microseconds: plain Neighbor_alltoallv of the same bytes, ours, with products")
        print(f"{'agents':>8} {'d':>4} {'bytes':>8} {'plain':>8} {'ours':>8} {'ratio':>6} {'combine':>8} {'in one':>8}")
    for agents, d in EXCHANGES:
        size, bare, ours, combine, alone = exchange(comm, agents, d)
        if comm.rank == 0:
            print(
                f"{agents:>8} {d:>4} {size:>8} {1e6 * bare:>8.1f} {1e6 * ours:>8.1f} {ours / bare:>6.2f} "
                f"{1e6 * combine:>8.1f} {1e6 * alone:>8.1f}"
            )


def exchange(comm, agents: int, d: int) -> tuple[int, float, float, float, float]:
    """Return the bytes sent, and the seconds of a plain exchange, ours, ours with products, and all in one process."""
    from mpi4py import MPI

    graph = gs.Graph.small_world(agents * comm.size, neighbours=4, rewire=0.02, seed=1)
    network, local = gs.network.MPI(graph), gs.network.Local(graph)
    layout = network._layout
    v = np.random.default_rng(comm.rank).normal(size=(len(network.agents), d))
    everything = network.session.gather(v)
    links = comm.Create_dist_graph_adjacent(list(layout.outgoing), list(layout.outgoing), reorder=False)
    out = [d * len(rows) for rows in layout.outgoing.values()]
    into = [d * len(rows) for rows in layout.incoming.values()]
    numbers, sent = np.ones(sum(out)), np.empty(sum(out))
    message = [sent, (out, None), MPI.DOUBLE]
    place = [np.empty(sum(into)), (into, None), MPI.DOUBLE]
    traffic = network._exchange.traffic(d, v.dtype)

    def bare() -> None:
        # New numbers each time, as in a run: unchanged arrays would already be in both caches.
        np.copyto(sent, numbers)
        links.Neighbor_alltoallv(message, place)

    def ours() -> None:
        traffic.start(v)
        traffic.finish()

    calls = (
        bare,
        ours,
        lambda: network.combine(v, network.laplacian),
        lambda: local.combine(everything, local.laplacian),
    )
    return 8 * sum(out), *(seconds_of(call, comm) for call in calls)


def run(comm, agents: int, d: int = 50, rows: int = 40) -> float:
    """Return the seconds of 30 outer iterations of PDS."""
    graph = gs.Graph.small_world(agents, neighbours=4, rewire=0.02, seed=1)
    network = gs.network.MPI(graph)

    def build(agent: int) -> gs.losses.Loss:
        rng = np.random.default_rng(agent)
        return gs.losses.Logistic(rng.normal(size=(rows, d)), rng.choice([-1, 1], size=rows), agents=1)

    problem = gs.Problem.build(network, lambda agent: (build(agent), gs.domains.L2Ball(1.0)))
    method = gs.PDS(L=40.0, R=0.5)
    times = []
    for _ in range(3):
        solution = gs.solve(problem, network, method, stop=gs.Stop(iterations=30), record_every=30)
        times.append(solution.costs.seconds)
    return float(np.median(times))


def main() -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.size > 1:
        exchanges(comm)
    for kind, agents in SCALED:
        seconds = run(comm, agents if kind == "strong" else agents * comm.size)
        if comm.rank == 0:
            print(f"scaling {kind} {comm.size} {seconds:.6f}", flush=True)


def start(processes: int) -> dict[str, float]:
    """Return the seconds by kind of scaling."""
    mpiexec = Path(sys.prefix) / "bin" / "mpiexec"
    command = [str(mpiexec), "-n", str(processes), sys.executable, __file__]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GRADSLIDE_BENCH": "inside"}
    output = subprocess.run(command, env=environment, text=True, check=True, stdout=subprocess.PIPE).stdout
    lines = output.splitlines()
    print("\n".join(line for line in lines if not line.startswith("scaling")))
    return {line.split()[1]: float(line.split()[3]) for line in lines if line.startswith("scaling")}


if __name__ == "__main__":
    if os.environ.get("GRADSLIDE_BENCH") == "inside":
        main()
    else:
        one, two = start(1), start(2)
        speedup, efficiency = one["strong"] / two["strong"], one["weak"] / two["weak"]
        print(f"strong scaling, {SCALED[0][1]} agents: 2 processes are {speedup:.2f} times as fast as 1")
        print(f"weak scaling, {SCALED[1][1]} agents each: 2 processes take {1 / efficiency:.2f} of the time of 1")

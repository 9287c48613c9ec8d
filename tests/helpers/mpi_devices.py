"""Runs under mpiexec: what processes with a device each give, beside what one gives, on that device and in NumPy.

    mpiexec -n 2 python tests/helpers/mpi_devices.py cuda

Arguments: the device, and optionally a file for what was found, as JSON. Processes share a GPU if there are fewer of
them. With GRADSLIDE_CUDA_AWARE=1 MPI is given the memory of the device, with 0 it is not; by default MPI is asked.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from mpi4py import MPI

import gradslide as gs
from gradslide._support.arrays import on_device, to_numpy

GRAPHS = {
    "random": gs.Graph.random(13, max_degree=5, seed=1),
    "ring": gs.Graph.ring(9),
    "complete": gs.Graph.complete(8),
}
D = 6
DOMAINS = {
    "free": lambda m: gs.domains.Free(),
    "ball": lambda m: gs.domains.L2Ball(2.0),
    "own boxes": lambda m: gs.domains.Box(-1.0, np.linspace(0.2, 1.0, m)[:, None] + np.zeros(D)),
}
# Method, graph, domain, precision, what ends it.
RUNS = {
    "PDS": (gs.PDS(), "random", "ball", np.float64, {"iterations": 25}),
    "PDS, Laplacian": (gs.PDS(L=40.0, R=1.0, coupling="laplacian"), "ring", "ball", np.float64, {"iterations": 10}),
    "PDS to everybody": (gs.PDS(), "complete", "own boxes", np.float64, {"iterations": 25}),
    "PDS in single precision": (gs.PDS(), "random", "ball", np.float32, {"iterations": 10}),
    "SPDS": (gs.SPDS(N=30, seed=3), "random", "ball", np.float64, {"iterations": 30}),
    "AutoPDS": (gs.AutoPDS(), "random", "ball", np.float64, {"iterations": 25}),
    "Auto": (gs.Auto(), "ring", "own boxes", np.float64, {"iterations": 15}),
    "Newton": (gs.Newton(), "random", "free", np.float64, {"iterations": 6}),
    "LBFGS": (gs.LBFGS(), "random", "free", np.float64, {"iterations": 10}),
    "NIDS": (gs.NIDS(), "random", "ball", np.float64, {"iterations": 25}),
    "ADMM": (gs.ADMM(), "ring", "ball", np.float64, {"iterations": 8}),
    "DSGD": (gs.DSGD(), "random", "ball", np.float64, {"iterations": 25}),
    "ChocoSGD": (gs.ChocoSGD(), "random", "free", np.float64, {"iterations": 25}),
    "gap": (gs.AutoPDS(), "random", "ball", np.float64, {"gap": gs.Relative(1e-3), "iterations": 300}),
    "kkt": (gs.AutoPDS(), "random", "own boxes", np.float64, {"kkt": gs.Relative(1e-2), "iterations": 300}),
}


def problem_of(graph, domain, dtype, mu=0.01):
    rng = np.random.default_rng(5)
    features, labels = rng.normal(size=(8 * graph.m, D)).astype(dtype), rng.choice([-1, 1], size=8 * graph.m)
    return gs.Problem(gs.losses.Logistic(features, labels, agents=graph.m), DOMAINS[domain](graph.m), mu)


def followed(problem, network, method, stop, **options):
    """The solution, and the point after each outer iteration."""
    points = []

    def callback(record, x):
        points.append(x.copy())

    return gs.solve(problem, network, method, stop=gs.Stop(**stop), callback=callback, **options), points


def distance(found, expected):
    """How far points are apart, relative to their size."""
    pairs = list(zip(found, expected, strict=True))
    return max(float(np.max(np.abs(to_numpy(a) - b)) / max(1.0, np.max(np.abs(b)))) for a, b in pairs)


def compared(name, device):
    """One run in all processes, beside the same in this one."""
    method, graph, domain, dtype, stop = RUNS[name]
    graph = GRAPHS[graph]
    network = gs.network.MPI(graph, device=device)
    here = list(network.agents)
    whole = problem_of(graph, domain, dtype)
    # The better of two outputs may be another one after rounding.
    output = "last" if name == "kkt" else None
    many, points = followed(whole.take(here), network, method, stop, output=output)
    found = {"iterations": len(points), "status": many.status.name, "rounds": many.costs.rounds}
    for place, one in (("device", gs.network.Local(graph, device=device)), ("NumPy", graph)):
        alone, expected = followed(whole, one, method, stop, output=output)
        found |= {
            f"{place}: points": distance(points, [x[here] for x in expected]),
            f"{place}: mean": distance([many.mean], [alone.mean]),
            f"{place}: same end": (many.status, many.costs.rounds) == (alone.status, alone.costs.rounds),
            f"{place}: records": _records(many, alone),
        }
        if many.certificate is not None:
            bounds = (
                (getattr(many.certificate, side), getattr(alone.certificate, side)) for side in ("lower", "upper")
            )
            found[f"{place}: certificate"] = max(_apart(*pair) for pair in bounds)
        assert (many.certificate is None) == (alone.certificate is None)
    arrays = (many.x, many.mean, many.gathered().x, *many.outputs.values())
    found["arrays of NumPy's"] = all(type(array) is np.ndarray for array in arrays)
    staging = network._exchange.staging
    return found | {"staged": [staging.copies_to_host, staging.bytes_to_host], "sends all": network._exchange.sends_all}


def _records(many, alone):
    """The largest difference of what was observed, relative to its size or 1."""
    worst = 0.0
    for metric in ("objective", "residual", "disagreement", "lower", "gap"):
        for one, other in zip(many.history, alone.history, strict=True):
            a, b = getattr(one, metric), getattr(other, metric)
            assert (a is None) == (b is None), metric
            worst = max(worst, 0.0 if a is None else _apart(a, b))
    return worst


def _apart(a, b):
    return 0.0 if a == b else abs(a - b) / max(1.0, abs(b))


def exchanges(device):
    """Exchanges alone: results, and what was copied for them."""
    found = {}
    for name, graph in GRAPHS.items():
        network, local = gs.network.MPI(graph, device=device), gs.network.Local(graph)
        here, v = list(network.agents), np.random.default_rng(0).normal(size=(graph.m, D))
        rows = on_device(v[here], network.device)
        for weights in (graph.laplacian, gs.mixing.metropolis(graph).matrix):
            for _ in range(5):
                sent = on_device(v[here], network.device)
                result = network.combine(sent, weights)
                # What was sent may be overwritten at once.
                sent[:] = np.nan
            assert result.device == rows.device
            found.setdefault(name, []).append(distance([result], [local.combine(v, weights)[here]]))
        staging, sent = network._exchange.staging, network._exchange._outgoing
        out = len(here) if sent is None else len(sent)
        expected = 0 if network.cuda_aware or network.session.size == 1 else 10
        counted = (staging.copies_to_host, staging.bytes_to_host, staging.copies_to_device)
        assert counted == (expected, expected * out * D * 8, expected), counted
        for reduction, values in (("sum", v), ("max", v), ("or", v > 0.5)):
            there = on_device(values[here], network.device)
            assert np.array_equal(network.agree(there, reduction), local.agree(values, reduction)), reduction
            observed = network.session.observe(there, reduction)
            assert np.allclose(observed.astype(float), local.agree(values, reduction).astype(float), atol=1e-12)
        assert np.array_equal(network.session.gather(rows), v)
        assert np.array_equal(network.total(rows), local.total(v))
        assert np.array_equal(network.survey(rows, lambda graph, rows: rows.sum(axis=0)), v.sum(axis=0))
    return found


def checkpoints(device, folder):
    """A run that goes on on the device, and on the host, from what the device left."""
    graph = GRAPHS["random"]
    whole, found = problem_of(graph, "ball", np.float64), {}
    network = gs.network.MPI(graph, device=device)
    here = list(network.agents)
    for name in ("PDS", "AutoPDS"):
        method, path = RUNS[name][0], folder / f"{name}.npz"
        for place, last in ((network, 5), (network, 12), (gs.network.MPI(graph), 16)):
            options = {"stop": gs.Stop(iterations=last), "checkpoint": path}
            ran = gs.solve(whole.take(here), place, method, **options)
            expected = gs.solve(whole, graph, method, stop=gs.Stop(iterations=last))
            assert [record.iteration for record in ran.history] == list(range(1, last + 1))
            found[f"{name} to {last}"] = distance([ran.x], [expected.x[here]])
    return found


def starts(device):
    """Points to start from, of either kind, and a solution."""
    graph = GRAPHS["ring"]
    whole, network = problem_of(graph, "ball", np.float64), gs.network.MPI(graph, device=device)
    here, stop = list(network.agents), gs.Stop(iterations=5)
    x0 = 0.3 * np.random.default_rng(3).normal(size=(graph.m, D))
    expected = gs.solve(whole, graph, gs.PDS(), stop=stop, x0=x0)
    part = whole.take(here)
    given = (x0[here], on_device(x0[here], network.device))
    many = [gs.solve(part, network, gs.PDS(), stop=stop, x0=each) for each in given]
    again = gs.solve(whole, graph, gs.PDS(), stop=stop, warm_start=expected)
    warm = gs.solve(part, network, gs.PDS(), stop=stop, warm_start=many[0])
    # A problem that is on a device already needs no network that moves it.
    moved = gs.solve(part.to(network.device), gs.network.MPI(graph), gs.PDS(), stop=stop, x0=x0[here])
    return {
        "x0": distance([one.x for one in (*many, moved)], 3 * [expected.x[here]]),
        "warm": distance([warm.x], [again.x[here]]),
        "dual": distance([many[0].dual], [expected.dual[here]]),
    }


def reads(device):
    """How often more the host reads arrays of the device in 40 outer iterations than in 10, without records."""
    graph, counted = GRAPHS["random"], []
    network = gs.network.MPI(graph, device=device)
    part = problem_of(graph, "ball", np.float64).take(network.agents).to(network.device)
    plain = torch.Tensor.cpu

    def counting(tensor, *arguments):
        counted[-1] += 1
        return plain(tensor, *arguments)

    torch.Tensor.cpu = counting
    try:
        for iterations in (10, 10, 40):
            counted.append(0)
            gs.solve(part, network, gs.PDS(L=40.0, R=1.0), stop=gs.Stop(iterations=iterations), record_every=iterations)
    finally:
        torch.Tensor.cpu = plain
    assert counted[1] > 0
    return counted[2] - counted[1]


def refusals():
    """What cannot be, in all processes or in one."""
    graph, said = GRAPHS["ring"], {}
    rank = MPI.COMM_WORLD.rank
    calls = {
        "nowhere": lambda: gs.network.MPI(graph, device="cuda:99"),
        "somewhere": lambda: gs.network.MPI(graph, device="cuda:99" if rank == 1 else "cpu"),
        "aware of nothing": lambda: gs.network.MPI(graph, cuda_aware=True),
        "mixed": lambda: gs.solve(
            problem_of(graph, "ball", np.float64).take(gs.network.MPI(graph).agents),
            gs.network.MPI(graph, device="cpu" if rank == 1 else None),
        ),
    }
    for name, call in calls.items():
        try:
            call()
        except gs.InputError as error:
            said[name] = str(error)
    return said


def refused(tensor, *_, **__):
    raise TypeError("a tensor on a device is no array of NumPy's")


def main(device, path=None):
    comm = MPI.COMM_WORLD
    # Tensors of the CPU are as closed to NumPy as those of a GPU.
    torch.Tensor.__array__ = refused
    network = gs.network.MPI(GRAPHS["ring"], device=device)
    library = MPI.Get_library_version().partition("\n")[0].strip("\x00")
    found = {"cuda_aware": network.cuda_aware, "exchanges": exchanges(device), "reads": reads(device)}
    with tempfile.TemporaryDirectory() as own:
        found["checkpoints"] = checkpoints(device, Path(comm.bcast(own)))
        comm.Barrier()
    found |= {"starts": starts(device), "refusals": refusals()}
    found["runs"] = {name: compared(name, device) for name in RUNS}
    everywhere, devices = comm.gather(found), comm.gather(str(network.device))
    if comm.rank > 0:
        return
    if path is not None:
        Path(path).write_text(json.dumps(everywhere))
    print(f"{comm.size} processes on {', '.join(devices)}; {library}; CUDA-aware: {network.cuda_aware}")
    for name in ("exchanges", "checkpoints", "starts", "reads"):
        print(f"{name}: {[each[name] for each in everywhere]}")
    print("run: iterations, rounds, largest relative difference to one process on the device and in NumPy,")
    print("     copies from the device to the host, and bytes, of each process")
    for name in RUNS:
        each = [one["runs"][name] for one in everywhere]
        apart = [max(one[f"{place}: points"] for one in each) for place in ("device", "NumPy")]
        staged = "; ".join(f"{copies} copies, {size} bytes" for copies, size in (one["staged"] for one in each))
        print(f"{name}: {each[0]['iterations']}, {each[0]['rounds']}, {apart[0]:.1e}, {apart[1]:.1e}, {staged}")


if __name__ == "__main__":
    main(*sys.argv[1:])

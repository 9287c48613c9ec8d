"""The cheapest dispatch of a power grid whose areas keep their generators to themselves.

For transmission operators who run one grid together: each area knows its own generators, lines and demand, and no
other's. Areas are neighbours if lines join them. They agree on the angles at both ends of these lines, and find the
dispatch of the whole grid, with the price of power at every bus. Every area is a process of its own: it reads one file
with its own data, and talks to its neighbours over encrypted connections. The prices are compared with those of an
exact solver that knows everything.

The grids are case files of MATPOWER, for example of https://github.com/power-grid-lib/pglib-opf: without a file as
argument, pglib_opf_case118_ieee.m in the folder opf of the data directory (`gradslide data list` says where that is).

    python examples/dc_opf_areas.py [PICTURE.png] [CASE.m] [AREAS]
"""

import multiprocessing
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import scipy.sparse as sp
from matpower import partition, read_case, split, whole
from scipy.optimize import linprog

import gradslide as gs
from gradslide.network.peers.keys import make_key_pair, read_secret
from gradslide.network.peers.neighbour import Neighbour, free_addresses

MARKS = "osD^vPX*"
ARRAYS = ("buses", "units", "c", "lower", "upper", "low", "high")


def operate(folder, area, neighbours, addresses, diameter):
    """What one area does: all that it reads is its own file, and public keys."""
    with np.load(folder / f"{area}.npz") as file:
        own = dict(file)
    loss = gs.losses.Quadratic(sp.diags_array(own["square"], format="csr"), own["c"])
    X = gs.domains.Polyhedron(own["A"], own["lower"], own["upper"], own["low"], own["high"])
    problem = gs.Problem([loss], domain=[X], coupling=gs.Coupled([own["coupling"]], 0.0))

    keys = {j: (folder / f"area-{j}.public").read_text(encoding="utf-8").strip() for j in neighbours}
    others = [Neighbour(f"area {j}", addresses[j], key) for j, key in keys.items()]
    secret = read_secret(folder / f"area-{area}.secret")
    with gs.network.Peers(secret, addresses[area], others, run_id="dispatch", diameter=diameter, meet=60.0) as network:
        solution = gs.solve(problem, network)

    # The price at a bus is minus the multiplier of its balance.
    x = problem.blocks(solution.x)[0][None]
    slope = loss.gradient(x) + own["coupling"].T @ solution.dual
    balances = X.bind(*x.shape, x.dtype).multipliers(x, slope)[0, : len(own["buses"])]
    costs = solution.costs
    found = [float(loss.value(x)[0]), costs.gradients, costs.rounds, costs.floats_sent, costs.seconds]
    np.savez(folder / f"result-{area}.npz", x=x[0], prices=-balances, found=found)
    (folder / f"status-{area}").write_text(f"{solution.status.name} {solution.kkt}", encoding="utf-8")


def exact(case):
    """The cost and the prices of the whole grid by HiGHS, or by gradslide if costs are quadratic."""
    grid = whole(case)
    buses = len(grid.buses)
    if grid.Q.nnz and abs(grid.Q).max() > 0:
        loss, box = gs.losses.Quadratic(grid.Q, grid.c), gs.domains.Box(grid.low, grid.high)
        problem = gs.LinearlyConstrained(loss, grid.A, lower=grid.lower, upper=grid.upper, domain=box)
        solution = gs.solve(problem, stop=gs.Stop(kkt=1e-10, iterations=20))
        return solution.objective + grid.offset, -solution.dual[:buses]
    rest = grid.A[buses:]
    A_ub, b_ub = sp.vstack([rest, -rest]), np.concatenate([grid.upper[buses:], -grid.lower[buses:]])
    kept = np.isfinite(b_ub)
    bounds = np.column_stack([grid.low, grid.high])
    found = linprog(grid.c, A_ub.tocsr()[kept], b_ub[kept], grid.A[:buses], grid.lower[:buses], bounds)
    return found.fun + grid.offset, found.eqlin.marginals


def run(case, labels, folder):
    """Let all areas find the dispatch, each in a process; return their results."""
    areas = split(case, labels)
    for i, area in enumerate(areas):
        arrays = {name: getattr(area, name) for name in ARRAYS}
        dense = {"A": area.A.toarray(), "coupling": area.coupling.toarray(), "square": area.Q.diagonal()}
        np.savez(folder / f"{i}.npz", **arrays, **dense)
        make_key_pair(f"area-{i}", folder)
    pairs = labels[case.ends]
    grid = nx.Graph(pairs[pairs[:, 0] != pairs[:, 1]].tolist())
    addresses, context = free_addresses(len(areas)), multiprocessing.get_context("spawn")
    given = [(folder, i, sorted(grid.neighbors(i)), addresses, nx.diameter(grid)) for i in range(len(areas))]
    processes = [context.Process(target=operate, args=each) for each in given]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        sys.exit("an area failed: its message is above")
    return areas, [dict(np.load(folder / f"result-{i}.npz")) for i in range(len(areas))]


def draw(case, labels, prices, picture):
    figure, axis = plt.subplots(figsize=(9.0, 6.0), layout="constrained")
    graph = nx.Graph(case.ends.tolist())
    places = nx.kamada_kawai_layout(graph)
    ties = labels[case.ends[:, 0]] != labels[case.ends[:, 1]]
    for chosen, colour, width in ((~ties, "0.75", 0.8), (ties, "#D55E00", 2.0)):
        nx.draw_networkx_edges(graph, places, case.ends[chosen].tolist(), ax=axis, edge_color=colour, width=width)
    for area in range(labels.max() + 1):
        buses = np.flatnonzero(labels == area)
        style = {"node_shape": MARKS[area % len(MARKS)], "node_size": 90, "cmap": "viridis", "edgecolors": "black"}
        style |= {"node_color": prices[buses], "vmin": prices.min(), "vmax": prices.max(), "label": f"area {area}"}
        nodes = nx.draw_networkx_nodes(graph, places, buses.tolist(), ax=axis, **style)
    figure.colorbar(nodes, ax=axis, label="price of power, $/MWh", shrink=0.8)
    axis.legend(loc="best")
    axis.set_title("Price at each bus; areas agree over the tie lines (orange)")
    axis.set_axis_off()
    figure.savefig(picture, dpi=150)


def main(picture: Path, path: Path, areas: int = 4) -> None:
    if not path.is_file():
        sys.exit(f"{path} is missing: get a case file, for example from https://github.com/power-grid-lib/pglib-opf")
    case = read_case(path)
    labels = partition(case, areas)
    cost, expected = exact(case)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts, results = run(case, labels, folder)
        print(f"{path.name}: {len(labels)} buses, {len(case.at)} units, {areas} areas\n")
        print("area  buses  units  cost, $/h  gradients  rounds    floats  seconds  status")
        prices = np.empty(len(labels))
        for i, (part, result) in enumerate(zip(parts, results, strict=True)):
            value, gradients, rounds, floats, seconds = result["found"].tolist()
            status = (folder / f"status-{i}").read_text(encoding="utf-8").partition(" ")[0]
            numbers = f"{value:9,.0f}  {gradients:9.0f}  {rounds:6.0f}  {floats:8,.0f}  {seconds:7.2f}"
            print(f"{i:4}  {len(part.buses):5}  {len(part.units):5}  {numbers}  {status}")
            prices[part.buses] = result["prices"]
    found = sum(result["found"][0] for result in results) + case.offset
    prices, expected = prices / case.base, expected / case.base
    print(f"\ncost of the dispatch {found:,.3f} $/h, of an exact solver {cost:,.3f} $/h")
    print(f"prices {prices.min():.4f} to {prices.max():.4f} $/MWh; largest difference from the exact ones ", end="")
    print(f"{np.abs(prices - expected).max():.2g} $/MWh")
    draw(case, labels, prices, picture)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        Path(given[0] if given else "dc_opf_areas.png"),
        Path(given[1]) if len(given) > 1 else gs.data.data_directory() / "opf" / "pglib_opf_case118_ieee.m",
        int(given[2]) if len(given) > 2 else 4,
    )

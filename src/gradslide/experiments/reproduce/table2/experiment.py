"""Table 2 of the paper: SPDS and SDCS to two target losses on three networks, the paper's rows
beside ours.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from gradslide.experiments.reproduce.implied import implied_L, implied_norm, rounds_of
from gradslide.experiments.reproduce.paper import (
    PAPER,
    Published,
    Row,
    grid,
    levels_text,
    loss_level,
    networks,
    packaged,
    published,
    said,
)
from gradslide.experiments.reproduce.report import Report, Statement
from gradslide.experiments.reproduce.row_plots import plot_rows
from gradslide.experiments.reproduce.runs import Bench, Facts, all_rounds
from gradslide.experiments.reproduce.table2.runs import SDCSTask, SPDSTask, perform_sdcs, perform_spds
from gradslide.experiments.tables import Cell, Column, Table, columns

STATED, TUNED, DEFAULT = "(i)", "(ii)", "(iii)"


Papers = Mapping[Row, Published]
Means = Mapping[Row, Mapping[str, Mapping[str, Cell]]]
_ROWS = (
    *columns("network", "target", "block"),
    Column("residual", "norm of A x"),
    *columns("rounds", "samples"),
    Column("loss", "loss at mean"),
    Column("spread", "spread of loss"),
    Column("disagreement"),
    Column("disagreement_spread", "spread of disagreement"),
    *columns("L", "R", "reached"),
)


class Chosen(NamedTuple):
    """What tuning found for a row: one L and one number of samples for all networks, R for each."""

    L: float
    R: float
    samples: int


def reproduce(bench: Bench, spec: dict[str, Any] | None = None) -> Report:
    """spec: in the place of the packaged table2.toml."""
    spec = packaged("table2") if spec is None else spec
    levels = {aim["target"]: loss_level(bench.data, spec["agents"], aim["target"]) for aim in spec["aim"]}
    chosen = _tuned(bench, spec, levels)
    runs = bench.outcomes(_tasks(bench, spec, chosen), perform_spds)
    sdcs = bench.outcomes(_sdcs_tasks(bench, spec, levels), perform_sdcs)
    papers = published(spec, "SPDS")
    found: dict[Row, dict[str, list[Facts]]] = {row: {} for row in papers}
    for task, facts in runs.items():
        found[task.net.name, task.target].setdefault(task.block, []).append(facts)
    shown = {
        row: {block: means(each, levels[row[1]], spec["disagreement"]) for block, each in blocks.items()}
        for row, blocks in found.items()
    }
    return Report(
        name="table2",
        title="Table 2: SPDS and SDCS to the same target loss",
        facts={
            "data": bench.data.label,
            "split": f"{spec['agents']} agents, contiguous blocks in the file's order; rows drawn with replacement",
            "networks": f"Graph.random, seeds {', '.join(map(str, spec['seeds']))}",
            "draws": f"seeds 0 to {spec['draws'] - 1}, on each network",
            "target losses": levels_text(bench.data, levels),
        },
        tables=[main_table(spec, papers, shown), implied_table(spec, papers), sdcs_table(sdcs, spec)],
        statements=statements(papers, shown, TUNED, bench.data.is_papers),
        found={
            "SPDS": {
                said(row): {block: [_with_old_name(facts) for facts in each] for block, each in blocks.items()}
                for row, blocks in found.items()
            },
            "SDCS": {
                task.label: {
                    "reached": [None if facts is None else _with_old_name(facts) for facts in each["reached"]],
                    "last": _with_old_name(each["last"]),
                }
                for task, each in sdcs.items()
            },
        },
        figures={"table2": lambda: plot_rows(papers, shown, titles(spec), work="samples")},
    )


def _with_old_name(facts: Facts) -> Facts:
    """For JSON: `apart`, the old name of the disagreement, stays beside it until 0.3."""
    return {**facts, "apart": facts["disagreement"]}


def _tasks(bench: Bench, spec: dict[str, Any], chosen: dict[Row, Chosen]) -> list[SPDSTask]:
    """What is reported: every block with every draw on every network."""
    papers, tasks = published(spec, "SPDS"), []
    for aim, net, draw in product(spec["aim"], networks(spec), range(spec["draws"])):
        target, N, row = aim["target"], aim["N"], (net.name, aim["target"])
        common = {"data": bench.data, "net": net, "target": target, "N": N, "draw": draw}
        paper = papers[row]
        stated = {"L": implied_L(paper.work, N=N, c=spec["stated"]["c"]), **spec["stated"], "samples": None}
        tasks.append(SPDSTask(**common, block=STATED, coupling="laplacian", **stated))
        if row in chosen:
            tasks.append(SPDSTask(**common, block=TUNED, coupling="incidence", c=None, **chosen[row]._asdict()))
        tasks.append(
            SPDSTask(**common, block=DEFAULT, coupling="incidence", L=None, R=None, c=None, samples=paper.work)
        )
    return tasks


def _tuned(bench: Bench, spec: dict[str, Any], levels: dict[float, float]) -> dict[Row, Chosen]:
    """The fewest samples, then the fewest rounds, with which every trial gets there on every kind
    of network.
    """
    papers, given = published(spec, "SPDS"), spec["tuned"]
    trials = _trials(bench, spec)
    runs = bench.outcomes(trials, perform_spds)
    good: dict[tuple[float, float, int], dict[str, list[tuple[int, float]]]] = {}
    for (target, L, R, samples, network), group in _grouped(trials).items():
        rounds = max(all_rounds(runs[task]) for task in group)
        enough = all(
            runs[task]["loss"] <= given["margin"]["loss"] * levels[target]
            and runs[task]["disagreement"] <= given["margin"]["disagreement"] * spec["disagreement"]
            for task in group
        )
        if enough and rounds <= papers[network, target].rounds:
            good.setdefault((target, L, samples), {}).setdefault(network, []).append((rounds, R))
    chosen: dict[Row, Chosen] = {}
    for target in levels:
        whole = [
            (samples, sum(min(each)[0] for each in kinds.values()), L, kinds)
            for (aim, L, samples), kinds in good.items()
            if aim == target and len(kinds) == len(spec["network"])
        ]
        if whole:
            samples, _, L, kinds = min(whole, key=lambda each: each[:3])
            chosen |= {(name, target): Chosen(L, min(each)[1], samples) for name, each in kinds.items()}
    return chosen


def _trials(bench: Bench, spec: dict[str, Any]) -> list[SPDSTask]:
    """On every network, with no more rounds than the paper's: the schedule says ahead how many
    there will be.
    """
    given, papers = spec["tuned"], published(spec, "SPDS")
    most = {
        aim["target"]: min(row.work for row in papers.values() if row.target == aim["target"]) for aim in spec["aim"]
    }
    return [
        SPDSTask(
            data=bench.data,
            net=net,
            block=TUNED,
            target=aim["target"],
            N=aim["N"],
            coupling="incidence",
            L=L,
            R=R,
            c=None,
            samples=min(most[aim["target"]], round(share * aim["N"])),
            draw=draw,
        )
        for aim, net, draw in product(spec["aim"], networks(spec), given["draws"])
        for L, R in product(grid(given["L"]), grid(given["R"]))
        if rounds_of(N=aim["N"], L=L, R=R, norm=net.norm("incidence")) <= papers[net.name, aim["target"]].rounds
        for share in given["samples"]
    ]


def _grouped(trials: list[SPDSTask]) -> dict[tuple[float, float, float, int, str], list[SPDSTask]]:
    groups: dict[tuple[float, float, float, int, str], list[SPDSTask]] = {}
    for task in trials:
        assert task.L is not None
        assert task.R is not None
        assert task.samples is not None
        groups.setdefault((task.target, task.L, task.R, task.samples, task.net.name), []).append(task)
    return groups


def _sdcs_tasks(bench: Bench, spec: dict[str, Any], levels: dict[float, float]) -> list[SDCSTask]:
    given = spec["sdcs"]
    return [
        SDCSTask(bench.data, net, tuple(levels.values()), spec["disagreement"], bench.budget(given), draw)
        for net in networks(spec)
        if net.seed == given["seed"]
        for draw in range(given["draws"])
    ]


def titles(spec: dict[str, Any]) -> dict[str, str]:
    stated = spec["stated"]
    return {
        "(i)": f"as stated: Laplacian, R = {stated['R']:g}, c = {stated['c']:g}, the L that the paper's samples imply",
        "(ii)": "incidence; one L and one number of samples per target, R per kind of network, tuned with another draw",
        "(iii)": "gs.SPDS(N=..., samples=the paper's), nothing tuned",
    }


def means(found: Sequence[Facts], level: float, disagreement: float) -> dict[str, Cell]:
    """Over networks and draws. reached: both the loss at the mean and the disagreement are what was
    asked for.
    """

    def of(name: str) -> float:
        return fmean(facts[name] for facts in found)

    def spread(name: str) -> float:
        return stdev(facts[name] for facts in found) if len(found) > 1 else 0.0

    reached = [facts["loss"] <= level and facts["disagreement"] <= disagreement for facts in found]
    return {
        "residual": of("residual"),
        "rounds": fmean(map(all_rounds, found)),
        "samples": of("samples"),
        "most_samples": max(facts["samples"] for facts in found),
        "most_rounds": max(map(all_rounds, found)),
        "loss": of("loss"),
        "spread": spread("loss"),
        "disagreement": of("disagreement"),
        "disagreement_spread": spread("disagreement"),
        "L": of("L"),
        "R": of("R"),
        "reached": f"{sum(reached)}/{len(reached)}",
        "all_reached": all(reached),
    }


def main_table(spec: dict[str, Any], papers: Papers, shown: Means) -> Table:
    records: list[dict[str, Cell]] = []
    for row, paper in papers.items():
        where: dict[str, Cell] = {"network": row[0], "target": row[1]}
        figures: dict[str, Cell] = {"residual": paper.residual, "rounds": paper.rounds, "samples": paper.work}
        records.append({**where, "block": PAPER, **figures, "reached": "1/1"})
        records += [{**where, "block": name, **found} for name, found in sorted(shown[row].items())]
    return Table.of_records(
        title="The paper's rows and ours",
        name="rows",
        columns=_ROWS,
        records=records,
        notes=[
            *(f"{name}: {title}" for name, title in titles(spec).items()),
            f"means and standard deviations over {len(spec['seeds'])} networks of a kind and {spec['draws']} draws on "
            f"each; reached: loss at the mean at most the target, disagreement at most {spec['disagreement']:g} |mean|",
            "N outer iterations: " + ", ".join(f"{aim['N']} to {aim['target']:g}" for aim in spec["aim"]),
            "output: average, which the theorem is about; rounds: control rounds included; ||A|| is known",
            "||A x||, with the Laplacian, is not asked for: the paper's values are on another scale than what its own "
            "parameters give, block (i)",
        ],
    )


def implied_table(spec: dict[str, Any], papers: Papers) -> Table:
    """With the Laplacian, lmax >= maximum degree + 1 whatever the network."""
    N = {aim["target"]: aim["N"] for aim in spec["aim"]}
    degree = {table["name"]: table["max_degree"] for table in spec["network"]}
    rows: list[list[Cell]] = []
    for (network, target), paper in papers.items():
        L = implied_L(paper.work, N=N[target], c=spec["stated"]["c"])
        norm = implied_norm(paper.rounds, N=N[target], L=L, R=spec["stated"]["R"])
        rows.append(
            [network, target, paper.work, L, paper.rounds, norm, degree[network] + 1, norm >= degree[network] + 1]
        )
    return Table(
        title="What the paper's counts imply",
        name="implied",
        columns=columns(
            "network",
            "target",
            "samples",
            "implied L",
            "rounds",
            "implied norm of A",
            "least norm of A",
            "possible",
        ),
        rows=rows,
        notes=[
            f"Theorem 2 with R = {spec['stated']['R']:g} and c = {spec['stated']['c']:g}, as the paper states: the "
            "samples fix L, and with it the rounds fix ||A|| = lmax, which no graph has "
            "below its maximum degree + 1",
        ],
    )


def sdcs_table(runs: Mapping[SDCSTask, dict[str, Any]], spec: dict[str, Any]) -> Table:
    rows: list[list[Cell]] = []
    for name in dict.fromkeys(task.net.name for task in runs):
        own = [found for task, found in runs.items() if task.net.name == name]
        for index, aim in enumerate(spec["aim"]):
            ends = [found["reached"][index] or found["last"] for found in own]
            reached = sum(found["reached"][index] is not None for found in own)
            rows.append([name, aim["target"], f"{reached}/{len(own)}", *_middle(ends)])
    budget = max((task.rounds for task in runs), default=0)
    return Table(
        title="SDCS",
        name="sdcs",
        columns=columns(
            "network", "target", "reached", "norm of A x", "rounds", "samples", "loss at mean", "disagreement"
        ),
        rows=rows,
        notes=[
            f"T_k = min(10 k, 5000), one sample per inner iteration, output: average; budget {budget:,} rounds "
            f"(--full: {spec['sdcs']['full']:,}); medians over draws; of what was not reached at the end of the run",
            "the paper's SDCS reached none of the six rows within 4,000 rounds",
        ],
    )


def _middle(found: Sequence[Facts]) -> list[Cell]:
    rounds = median(map(all_rounds, found))
    shown = {key: median(facts[key] for facts in found) for key in ("residual", "samples", "loss", "disagreement")}
    return [shown["residual"], rounds, shown["samples"], shown["loss"], shown["disagreement"]]


def statements(papers: Papers, shown: Means, block: str, is_papers: bool) -> list[Statement]:
    """holds: of the comparison only on the paper's data."""

    def good(row: Row) -> bool:
        found = shown[row].get(block)
        if found is None:
            return False
        samples, rounds = found["most_samples"], found["most_rounds"]
        assert isinstance(samples, int | float)
        assert isinstance(rounds, int | float)
        return bool(found["all_reached"]) and samples <= papers[row].work and rounds <= papers[row].rounds

    count, total = sum(map(good, papers)), len(papers)
    targets = dict.fromkeys(target for _, target in papers)
    moved = [
        target
        for target in targets
        if len({shown[row][block]["samples"] for row in papers if row[1] == target and block in shown[row]}) != 1
    ]
    return [
        Statement(
            f"block {block} reaches the target with every draw, with at most the paper's samples and rounds, in all "
            f"{total} rows: {count} of {total}",
            count == total if is_papers else None,
        ),
        Statement(f"the samples of block {block} do not move with the network: they are tuned so", not moved),
    ]

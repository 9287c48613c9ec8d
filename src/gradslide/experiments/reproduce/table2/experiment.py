"""Table 2 of the paper: SPDS and SDCS to two target losses on three networks, the paper's rows beside ours."""

from itertools import product
from typing import Any, NamedTuple

from gradslide.experiments.reproduce.implied import implied_L, rounds_of
from gradslide.experiments.reproduce.instance import loss_level, told_levels
from gradslide.experiments.reproduce.report import Report
from gradslide.experiments.reproduce.row_plots import plot_rows
from gradslide.experiments.reproduce.runs import Bench, Facts, all_rounds
from gradslide.experiments.reproduce.spec import Row, grid, networks, packaged, published, said
from gradslide.experiments.reproduce.table2.runs import SDCSTask, SPDSTask, perform_sdcs, perform_spds
from gradslide.experiments.reproduce.table2.tables import (
    implied_table,
    main_table,
    means,
    sdcs_table,
    statements,
    titles,
)

STATED, TUNED, DEFAULT = "(i)", "(ii)", "(iii)"


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
            "target losses": told_levels(bench.data, levels),
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
    """For JSON: `apart`, the old name of the disagreement, stays beside it until 0.2."""
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
    """The fewest samples, then the fewest rounds, with which every trial gets there on every kind of network."""
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
    """On every network, with no more rounds than the paper's: the schedule says ahead how many there will be."""
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

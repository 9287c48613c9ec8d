"""Table 1 of the paper: PDS and DCS to two target losses on three networks, the paper's rows beside ours."""

from collections.abc import Sequence
from typing import Any

from gradslide.experiments.reproduce.implied import implied_L_of_rounds
from gradslide.experiments.reproduce.instance import loss_level, told_levels
from gradslide.experiments.reproduce.report import Report
from gradslide.experiments.reproduce.row_plots import plot_rows
from gradslide.experiments.reproduce.runs import Bench, Facts, all_rounds
from gradslide.experiments.reproduce.spec import Published, Row, grid, networks, packaged, published, said
from gradslide.experiments.reproduce.table1.runs import (
    AutoTask,
    CountsTask,
    DCSTask,
    Goal,
    GridTask,
    perform_auto,
    perform_counted,
    perform_dcs,
    perform_tuned,
)
from gradslide.experiments.reproduce.table1.tables import (
    AUTO,
    counts_table,
    dcs_table,
    main_table,
    middle,
    statements,
    titles,
)

Levels = dict[float, float]
# What each network of a kind gave, by row.
Found = dict[Row, list[Facts | None]]


def reproduce(bench: Bench, spec: dict[str, Any] | None = None) -> Report:
    """spec: in the place of the packaged table1.toml."""
    spec = packaged("table1") if spec is None else spec
    levels = {target: loss_level(bench.data, spec["agents"], target) for target in spec["targets"]}
    runs = bench.outcomes(_tasks(bench, spec, levels), perform_tuned)
    bests = {block["name"]: _best_of(runs, spec, block["name"]) for block in spec["block"]}
    auto = bench.outcomes(_auto_tasks(bench, spec, levels), perform_auto)
    bests[AUTO] = _found_by_auto(auto)
    dcs = bench.outcomes(_dcs_tasks(bench, spec, levels), perform_dcs)
    counted = bench.outcomes(_counted(bench, spec), perform_counted)
    papers = published(spec, "PDS")
    medians = {row: {name: middle(found[row]) for name, found in bests.items()} for row in papers}
    return Report(
        name="table1",
        title="Table 1: PDS and DCS to the same target loss",
        facts={
            "data": bench.data.label,
            "split": f"{spec['agents']} agents, contiguous blocks in the file's order",
            "networks": f"Graph.random, seeds {', '.join(map(str, spec['seeds']))}; figures are medians over them",
            "target losses": told_levels(bench.data, levels),
        },
        tables=[main_table(spec, papers, medians, bests), counts_table(counted, spec, papers), dcs_table(dcs, spec)],
        statements=statements(papers, bests, bench.data.is_papers),
        found={
            "best": {name: {said(row): each for row, each in found.items()} for name, found in bests.items()},
            "the paper's counts": {task.label: found for task, found in counted.items()},
            "DCS": {task.net.name: found for task, found in dcs.items()},
        },
        figures={"table1": lambda: plot_rows(papers, medians, titles(spec))},
        curves=_curves(auto, dcs),
        networks={task.net.label: task.net.graph for task in dcs},
    )


def _curves(auto: dict[AutoTask, dict[str, Any]], dcs: dict[DCSTask, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """On each network that DCS was run on: auto mode to the finest target, and DCS as far as it came."""
    finest = min(task.goal.level for task in auto)
    shown: dict[str, dict[str, Any]] = {}
    for task, found in dcs.items():
        own = {f"auto, to {each.goal.target:g}": auto[each] for each in auto if _is_of(each, task, finest)}
        runs = {**own, "DCS": found}
        shown[task.net.label] = {name: run["curve"] for name, run in runs.items() if "curve" in run}
    return shown


def _is_of(task: AutoTask, other: DCSTask, level: float) -> bool:
    return (task.net, task.goal.level) == (other.net, level)


def _goals(spec: dict[str, Any], levels: Levels, network: str, method: str = "PDS") -> tuple[Goal, ...]:
    rows = published(spec, method)
    return tuple(
        Goal(target, level, rows[network, target].residual)
        for target, level in levels.items()
        if (network, target) in rows
    )


def _tasks(bench: Bench, spec: dict[str, Any], levels: Levels) -> list[GridTask]:
    """Every block's grid on every network."""
    papers = published(spec, "PDS").values()
    return [
        GridTask(
            data=bench.data,
            net=net,
            block=block["name"],
            coupling=block["coupling"],
            output=block["output"],
            L=L,
            R=R,
            goals=_goals(spec, levels, net.name),
            iterations=spec["limits"]["iterations"],
            rounds=spec["limits"]["rounds"] * max(row.rounds for row in papers if row.network == net.name),
        )
        for block in spec["block"]
        for net in networks(spec)
        for L in grid(block["L"])
        for R in grid(block["R"])
    ]


def _best_of(runs: dict[GridTask, dict[str, Any]], spec: dict[str, Any], block: str) -> Found:
    """The best of a block's grid, for each row and each network of its kind."""
    papers = published(spec, "PDS")
    rows: Found = {row: [] for row in papers}
    for net in networks(spec):
        tried: dict[float, list[Facts]] = {target: [] for target in spec["targets"]}
        for task, found in runs.items():
            if (task.block, task.net) == (block, net):
                for goal, facts in zip(task.goals, found["reached"], strict=True):
                    if facts is not None:
                        tried[goal.target].append({**facts, "L": task.L, "R": task.R})
        for target, each in tried.items():
            rows[net.name, target].append(best(each, papers[net.name, target]))
    return rows


def best(tried: Sequence[Facts], paper: Published) -> Facts | None:
    """The fewest gradients among those that take no more of gradients and rounds than the paper's; else the one whose
    larger ratio to the paper's figures is smallest."""

    def order(facts: Facts) -> tuple[float, int, int]:
        over = max(facts["gradients"] / paper.work, all_rounds(facts) / paper.rounds)
        return max(over, 1.0), facts["gradients"], all_rounds(facts)

    return min(tried, key=order, default=None)


def _counted(bench: Bench, spec: dict[str, Any]) -> list[CountsTask]:
    """In the first block's setting, which is the paper's."""
    R = float(spec["block"][0]["R"])
    return [
        CountsTask(
            data=bench.data,
            net=net,
            target=row.target,
            N=row.work,
            L=implied_L_of_rounds(row.rounds, N=row.work, norm=net.graph.laplacian_norm, R=R),
            R=R,
        )
        for row in published(spec, "PDS").values()
        for net in networks(spec)
        if net.name == row.network
    ]


def _auto_tasks(bench: Bench, spec: dict[str, Any], levels: Levels) -> list[AutoTask]:
    return [
        AutoTask(data=bench.data, net=net, goal=goal, iterations=spec["limits"]["iterations"])
        for net in networks(spec)
        for goal in _goals(spec, levels, net.name)
    ]


def _found_by_auto(done: dict[AutoTask, dict[str, Any]]) -> Found:
    rows: Found = {}
    for task, found in done.items():
        rows.setdefault((task.net.name, task.goal.target), []).append(found["reached"][0])
    return rows


def _dcs_tasks(bench: Bench, spec: dict[str, Any], levels: Levels) -> list[DCSTask]:
    """The ||A x|| that PDS has in the paper, and its own where the paper has one."""
    given = spec["dcs"]
    return [
        DCSTask(
            data=bench.data,
            net=net,
            goals=(*_goals(spec, levels, net.name), *_goals(spec, levels, net.name, "DCS")),
            output=given["output"],
            rounds=bench.budget(given),
            folder=bench.folder / "runs",
            fresh=bench.fresh,
        )
        for net in networks(spec)
        if net.seed == given["seed"]
    ]

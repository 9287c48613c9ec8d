"""The tables: each function returns lines of text and the same as data."""

import statistics
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from auto_bench.errors import ACCURACIES, BALANCES, Spent
from auto_bench.pool import AGREEMENTS, MARGIN, Result, Results, Task
from auto_bench.problems import CONSTRAINED, dimension

Cell = tuple[str, str]
Table = tuple[list[str], Any]

WRONG_L = tuple(10.0**power for power in range(-3, 4))
FIXED_L = (1 / 4, 1 / 6, 1 / 2, 1 / 8, 1 / 12, 1.0, 1 / 16)
# A baseline is ahead if it is cheaper by more than this factor.
AHEAD = 1.10
_DEFAULT = 1.0
# Not a baseline, but it can be tuned too.
_SLIDING = "PDS"
_WIDTH = 19


def published() -> dict[str, dict[str, dict[str, str]]]:
    return tomllib.loads((Path(__file__).parent / "published.toml").read_text(encoding="utf-8"))


def against_prototype(results: Results, cells: list[Cell], agreement: str) -> Table:
    """Gradients/rounds of the first answer that reaches each accuracy; late: rounds include control rounds, which are
    also shown separately."""
    late = agreement == "late"
    said = published()["late" if late else "free"]
    what = "gradients/all rounds (control rounds)" if late else "gradients/rounds, sums over all agents free"
    lines = [f'AutoPDS(agreement="{agreement}"): {what}; below it the prototype and cost/its cost at balance 1']
    lines.append(_row("", "", (f"{accuracy:g}" for accuracy in ACCURACIES)))
    data = []
    for cell in cells:
        firsts = _firsts(results.auto(cell, balance=_DEFAULT, agreement=agreement))
        lines.append(_row(*cell, (_spent(first, late) for first in firsts)))
        known = [_parsed(text) for text in said.get(cell[0], {}).get(cell[1], "- - - -").split()]
        ratios = [_ratio(first, theirs, late) for first, theirs in zip(firsts, known, strict=True)]
        if any(known):
            pairs = zip(known, ratios, strict=True)
            lines.append(_row("", "prototype", (f"{a[0]}/{a[1]} {_number(ratio)}" if a else "-" for a, ratio in pairs)))
        data.append({"cell": cell, "spent": firsts, "prototype": known, "ratio": ratios})
    return lines, data


def against_baselines(results: Results, cells: list[Cell], count: str) -> Table:
    """Costs at each balance and accuracy, against the best of all baselines and their parameters."""
    agreement = AGREEMENTS[count]
    lines = [
        f'AutoPDS(balance=b, agreement="{agreement}") against the best baseline; cost = b * gradients + rounds, '
        f"the baselines' control rounds {count}; ratio: ours/theirs"
    ]
    data = []
    for cell in cells:
        lines.append(f"\n{cell[0]}, {cell[1]}")
        for balance in BALANCES:
            for i, accuracy in enumerate(ACCURACIES):
                ours = _best(results.auto(cell, balance=balance, agreement=agreement), i, balance, count)
                baseline = results.best(cell, ("core", "other"), i, balance, count, without=_SLIDING)
                best_of_all = results.best(cell, ("core", "other", "sliding"), i, balance, count)
                ratio, name = _over(ours, baseline), _baseline(baseline, ours, count)
                if best_of_all and best_of_all[2].method == _SLIDING:
                    name += f"; {_SLIDING}: {best_of_all[0]:.0f}"
                lines.append(
                    f"  b={balance:<5g}{accuracy:<7g}{_cost(ours):>9}{_cost(baseline):>9}{_number(ratio):>7}  {name}"
                )
                data.append(
                    {
                        "cell": cell,
                        "balance": balance,
                        "accuracy": accuracy,
                        "ours": ours,
                        "baseline": baseline and (*baseline[:2], baseline[2].label),
                        "ratio": ratio,
                        "any": best_of_all and (*best_of_all[:2], best_of_all[2].label),
                    }
                )
    for title, field in (("a baseline", "baseline"), ("a baseline, or PDS with the best fixed L and R,", "any")):
        lines.append(f"\nproblems x networks where {title} is ahead by more than {AHEAD - 1:.0%}, or ours fails")
        lines.append(_row("", "", (f"{accuracy:g}" for accuracy in ACCURACIES)))
        for balance in BALANCES:
            shares = []
            for accuracy in ACCURACIES:
                here = [row for row in data if row["balance"] == balance and row["accuracy"] == accuracy]
                behind = [_is_behind(row["ours"], row[field]) for row in here]
                shares.append(f"{sum(behind)} of {len(here)}")
            lines.append(_row(f"balance {balance:g}", "", shares))
    return lines, data


def constrained(results: Results, cells: list[Cell]) -> Table:
    """At balance 1, against baselines that support constraints and against PDS with fixed (L, R)."""
    lines, data = [], []
    for count, agreement in AGREEMENTS.items():
        for group, name in (("core", "NIDS, PG-EXTRA, accelerated tracking"), ("sliding", "PDS with fixed L and R")):
            lines.append(f'\nAutoPDS(agreement="{agreement}") at balance 1 against {name}, control rounds {count}')
            ratios = []
            for cell in cells:
                if cell[0] not in CONSTRAINED:
                    continue
                result = results.auto(cell, balance=_DEFAULT, agreement=agreement)
                for i, accuracy in enumerate(ACCURACIES):
                    ours = _best(result, i, _DEFAULT, count)
                    baseline = results.best(cell, (group,), i, _DEFAULT, count)
                    ratio = _over(ours, baseline)
                    ratios += [] if ratio is None else [ratio]
                    label = _baseline(baseline, ours, count)
                    start = f"{cell[0]}, {cell[1]}" if i == 0 else ""
                    lines.append(
                        f"  {start:<20}{accuracy:<7g}{_cost(ours):>8}{_cost(baseline):>8}{_number(ratio):>7}  {label}"
                    )
                    data.append({"cell": cell, "accuracy": accuracy, "group": group, "count": count, "ratio": ratio})
            if ratios:
                below, median = sum(ratio < 1 for ratio in ratios), statistics.median(ratios)
                spread = f"ratio {median:.2f} (median), {max(ratios):.2f} (worst)"
                lines.append(f"  below theirs in {below} of {len(ratios)} cells; {spread}")
    return lines, data


def convergence(results: Results, cells: list[Cell]) -> Table:
    """Whether all runs reach the highest accuracy."""
    lines, data = [f'AutoPDS(agreement="exact"): gradients/rounds to {ACCURACIES[-1]:g}'], []
    for cell in cells:
        result = results.auto(cell, balance=_DEFAULT, agreement="exact")
        first = _firsts(result)[-1]
        end = "" if first or result is None else f"  {result.ended} {result.message}, error {result.error}"
        lines.append(_row(*cell, [_spent(first)]) + end)
        data.append({"cell": cell, "spent": first, "ended": result and result.ended})
    reached = sum(row["spent"] is not None for row in data)
    lines.append(f"{reached} of {len(data)} reach it")
    return lines, data


def wrong_first_L(results: Results, cells: list[Cell]) -> Table:
    """Additional gradients after a wrong first L."""
    lines, data = (
        ["additional gradients of AutoPDS(first_L = c * largest constant of the losses) against its default"],
        [],
    )
    lines.append(_row("", "", (f"c={c:g}" for c in WRONG_L), width=10))
    for cell in cells:
        usual = _firsts(results.auto(cell, balance=_DEFAULT, agreement="exact"))
        for i, accuracy in enumerate(ACCURACIES):
            extra = []
            for c in WRONG_L:
                first = _firsts(results.auto(cell, balance=_DEFAULT, agreement="exact", first_L_factor=c))[i]
                extra.append(first[0] - usual[i][0] if first and usual[i] else None)
            name = f"{cell[0]}, {cell[1]}" if i == 0 else ""
            lines.append(_row(name, f"{accuracy:g}", ("-" if n is None else f"{n:+d}" for n in extra), width=10))
            data.append({"cell": cell, "accuracy": accuracy, "extra": dict(zip(map(str, WRONG_L), extra, strict=True))})
    known = [n for row in data for n in row["extra"].values() if n is not None]
    if known:
        lines.append(
            f"at most {max(known):+d}; {sum(n is None for row in data for n in row['extra'].values())} missing"
        )
    return lines, data


def fixed_L(results: Results, cells: list[Cell]) -> Table:
    """The cost of not knowing L: the best fixed L of a grid, per accuracy, beside AutoPDS and the baselines."""
    count, agreement = "counted", AGREEMENTS["counted"]
    lines = [
        'AutoPDS(agreement="late") at balance 1: cost with the best fixed L of a grid; by default; of the best baseline'
    ]
    lines.append(_row("", "", (f"{accuracy:g}" for accuracy in ACCURACIES)))
    data = []
    for cell in cells:
        given = [results.auto(cell, balance=_DEFAULT, agreement=agreement, L_factor=c) for c in FIXED_L]
        rule = results.auto(cell, balance=_DEFAULT, agreement=agreement)
        columns = []
        for i, accuracy in enumerate(ACCURACIES):
            fixed = min(filter(None, (_best(result, i, _DEFAULT, count) for result in given)), default=None)
            ours = _best(rule, i, _DEFAULT, count)
            baseline = results.best(cell, ("core", "other"), i, _DEFAULT, count, without=_SLIDING)
            columns.append(" ".join(_cost(each) for each in (fixed, ours, baseline)))
            data.append(
                {
                    "cell": cell,
                    "accuracy": accuracy,
                    "fixed": fixed,
                    "ours": ours,
                    "baseline": baseline and baseline[:2],
                }
            )
        lines.append(_row(*cell, columns))
    return lines, data


def default(results: Results, cells: list[Cell]) -> Table:
    """Auto beside L-BFGS over exact sums: what each accuracy takes."""
    lines = ["Auto() and LBFGS(): gradients/all rounds (control rounds), and floats of all agents per gradient"]
    lines.append(_row("", "", (*(f"{accuracy:g}" for accuracy in ACCURACIES), "floats")))
    data = []
    for cell in cells:
        ours = results.default(cell, balance=_DEFAULT)
        found = results.known.get(cell, {}).get(Task(*cell, "exact", "LBFGS", {}).label)
        for name, result in ((ours.chosen if ours else "", ours), ("LBFGS", found[1] if found else None)):
            if result is None or (result is not ours and name == (ours and ours.chosen)):
                continue
            firsts = _firsts(result)
            floats = result.floats / max(1, result.spent[0])
            spent = [_spent(first, True) for first in firsts]
            lines.append(_row(*(cell if result is ours else ("", "")), [*spent, f"{floats:.0f} {name}"]))
            data.append({"cell": cell, "method": name, "spent": firsts, "floats": floats})
    return lines, data


def default_against_baselines(results: Results, cells: list[Cell], count_hessians: bool) -> Table:
    """Costs of Auto at each balance and accuracy, against the best of all baselines and their parameters."""
    what = "a Hessian counts as d/20 - 1 more gradients, at least 0" if count_hessians else "Hessians are not counted"
    lines = [
        f"Auto(balance=b) against the best baseline; cost = b * gradients + all rounds; {what}; ratio: ours/theirs"
    ]
    data, groups = [], ("core", "other", "sliding", "exact")
    for cell in cells:
        for balance in BALANCES:
            result = results.default(cell, balance=balance)
            more = max(0.0, dimension(cell[0]) / 20 - 1) if count_hessians else 0.0
            for i, accuracy in enumerate(ACCURACIES):
                ours = _best(result, i, balance, "counted")
                if ours is not None and result is not None:
                    # Hessians come last: a run may go from LBFGS to Newton.
                    hessians = max(0, ours[1][0] - (result.spent[0] - result.hessians))
                    ours = (ours[0] + more * balance * hessians, ours[1])
                baseline = results.best(cell, groups, i, balance, "counted")
                rivals = [
                    (hit, task.label)
                    for task, other in results.of(cell, groups)
                    for hit in other.hits[i]
                    if ours and hit[0] < ours[1][0] and hit[1] + hit[2] < ours[1][1] + ours[1][2]
                ]
                row = {"cell": cell, "balance": balance, "accuracy": accuracy, "ours": ours, "ahead": rivals}
                row |= {"baseline": baseline and (*baseline[:2], baseline[2].label), "ratio": _over(ours, baseline)}
                data.append(row)
                if ours is None or (baseline and baseline[0] < ours[0]) or rivals:
                    name = _baseline(baseline, ours, "counted")
                    costs = f"{_cost(ours):>9}{_cost(baseline):>9}{_number(row['ratio']):>7}"
                    lines.append(f"  {cell[0]}, {cell[1]}, b={balance:g}, {accuracy:g}: {costs}  {name}")
    least = [row["ours"] is not None and not (row["baseline"] and row["baseline"][0] < row["ours"][0]) for row in data]
    both = sum(bool(row["ahead"]) for row in data)
    lines.append(f"no baseline costs less in {sum(least)} of {len(data)} cases; all others are listed above")
    lines.append(f"a baseline is ahead in both gradients and rounds in {both} of {len(data)} cases")
    return lines, data


TABLES: dict[int, tuple[str, Callable[[Results, list[Cell]], list[Table]]]] = {
    1: ("sums free", lambda results, cells: [against_prototype(results, cells, "exact")]),
    2: ("all rounds counted", lambda results, cells: [against_prototype(results, cells, "late")]),
    3: ("baselines", lambda results, cells: [against_baselines(results, cells, count) for count in AGREEMENTS]),
    4: ("constrained", lambda results, cells: [constrained(results, cells)]),
    5: ("convergence", lambda results, cells: [convergence(results, cells)]),
    6: ("a wrong first L", lambda results, cells: [wrong_first_L(results, cells)]),
    7: ("the best fixed L", lambda results, cells: [fixed_L(results, cells)]),
    8: (
        "the default",
        lambda results, cells: [
            default(results, cells),
            *(default_against_baselines(results, cells, count_hessians) for count_hessians in (False, True)),
        ],
    ),
}


def _over(ours: tuple[Any, ...] | None, baseline: tuple[Any, ...] | None) -> float | None:
    """Return the ratio of two costs."""
    return ours[0] / baseline[0] if ours and baseline else None


def _is_behind(ours: tuple[Any, ...] | None, baseline: tuple[Any, ...] | None) -> bool:
    return baseline is not None and (ours is None or ours[0] > AHEAD * baseline[0])


def _firsts(result: Result | None) -> list[Spent | None]:
    return [tuple(hits[0]) if hits else None for hits in result.hits] if result else [None] * len(ACCURACIES)


def _best(result: Result | None, accuracy: int, balance: float, count: str) -> tuple[float, Spent] | None:
    return result.best(accuracy, balance, count) if result else None


def _parsed(text: str) -> tuple[int, int] | None:
    return None if text == "-" else tuple(int(part) for part in text.split("/"))


def _ratio(ours: Spent | None, theirs: tuple[int, int] | None, late: bool) -> float | None:
    """Return the ratio of costs at balance 1."""
    if ours is None or theirs is None:
        return None
    return (ours[0] + ours[1] + late * ours[2]) / sum(theirs)


def _spent(spent: Spent | None, late: bool = False) -> str:
    if spent is None:
        return "-"
    return f"{spent[0]}/{spent[1] + spent[2]} ({spent[2]})" if late else f"{spent[0]}/{spent[1]}"


def _baseline(baseline: tuple[float, Spent, Task] | None, ours: Any, count: str) -> str:
    if baseline is None:
        return f"none within {MARGIN:g} times ours" if ours else "none"
    return f"{_spent(baseline[1], count == 'counted'):>15}  {baseline[2].label}"


def _cost(found: tuple[Any, ...] | None) -> str:
    return "-" if found is None else f"{found[0]:.0f}"


def _number(ratio: float | None) -> str:
    return "-" if ratio is None or not np.isfinite(ratio) else f"{ratio:.2f}"


def _row(problem: str, network: str, columns: Iterable[str], width: int = _WIDTH) -> str:
    return f"{problem:<20}{network:<10}" + "".join(f"{column:>{width}}" for column in columns)

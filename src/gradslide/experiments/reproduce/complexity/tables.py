"""The tables of `gradslide reproduce complexity`, and what they are to show."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradslide.experiments.reproduce.complexity.fits import Found, Growth, all_of, keeps_to, obtained
from gradslide.experiments.reproduce.complexity.problem import Setting
from gradslide.experiments.reproduce.complexity.runs import KINDS
from gradslide.experiments.reproduce.report import Statement
from gradslide.experiments.tables import Cell, Table, columns

COUNTS = ("gradients", "rounds")
# The most that measured gradients may differ between networks; and errors between two ways of sampling, of eps.
_ALIKE = 1.1
_AGREE = 0.1


def tables(found: Found, grown: Sequence[Growth]) -> list[Table]:
    settings = found.spec.settings
    return [
        *(_exact_table(found, setting) for setting in settings),
        *(_sampled_table(found, setting) for setting in settings),
        _growth_table(found, grown),
    ]


def statements(found: Found, grown: Sequence[Growth]) -> list[Statement]:
    return [
        *_exact_statements(found, grown),
        _within_bounds(found),
        *(_alike(found, setting) for setting in found.spec.settings),
        *_sampled_statements(found, grown),
        _accurate(found),
        _few_samples(found),
        *_samplers_agree(found),
    ]


def _exact_table(found: Found, setting: Setting) -> Table:
    rows: list[list[Cell]] = []
    for network, run in found.exact_of(setting).items():
        for kind in KINDS:
            told = zip(found.spec.accuracies, run["eps"], run["counts"][kind], run["bounds"][kind], strict=True)
            for accuracy, eps, count, bound in told:
                counted = [(None if count is None else count[name], bound[name]) for name in COUNTS]
                rows.append([network, kind, accuracy, eps, *(cell for pair in counted for cell in pair)])
    return Table(
        title=f"PDS, {setting.name}: gradients and rounds per agent to an eps-solution",
        columns=columns(
            "network", "eps-solution", "accuracy", "eps", "gradients", "at most", "rounds", "rounds at most"
        ),
        rows=rows,
        notes=[_parameters(network, run) for network, run in found.exact_of(setting).items()],
    )


def _parameters(network: str, run: dict[str, Any]) -> str:
    names = ("L", "R", "A_norm", "z_star", "V")
    said = ", ".join(f"{name} = {run[name]:.4g}" for name in names)
    switch = "" if run["Delta"] is None else f", Delta = {run['Delta']}"
    return f"{network}: {said}{switch}."


def _sampled_table(found: Found, setting: Setting) -> Table:
    spec = found.spec
    # Theorem 2 b) names no constant.
    spent = ["eps", "N", "samples", *(["samples_bound"] if setting.mu == 0 else []), "rounds"]
    named = ["samples at most" if name == "samples_bound" else name for name in spent]
    headings = ["accuracy", *named, "objective at most", "||A x|| at most"]
    for sampler in spec.samplers:
        headings += [f"objective error, {sampler}", f"||A x||, {sampler}", f"obtained, {sampler}"]
    runs = {sampler: found.sampled_of(setting, sampler) for sampler in spec.samplers}
    rows: list[list[Cell]] = []
    for accuracy, run in runs[spec.samplers[0]].items():
        row: list[Cell] = [accuracy, *(run[name] for name in spent)]
        row += [run["objective_bound"], run["residual_bound"]]
        for sampler in spec.samplers:
            own = runs[sampler][accuracy]
            row += [float(np.mean(own["objective"])), float(np.mean(own["residual"])), obtained(own)]
        rows.append(row)
    notes = [
        "Errors and their bounds are relative to the optimum, and means over the seeds; samples are per agent. "
        "Obtained: the mean of max(|f(x_bar) - f*|, ||A x_bar||).",
        f"Between seeds the objective differs by at most {_spread(found, setting):.2%} of eps: the theorem's batches "
        "leave little of the noise.",
    ]
    return Table(f"SPDS, {setting.name}: samples and rounds, and the error obtained", columns(*headings), rows, notes)


def _spread(found: Found, setting: Setting) -> float:
    """The spread of the objective between seeds, relative to eps."""
    own = ((task.accuracy, run["objective"]) for task, run in found.sampled.items() if task.setting == setting)
    return max((float(np.ptp(errors)) / accuracy for accuracy, errors in own), default=0.0)


def _growth_table(found: Found, grown: Sequence[Growth]) -> Table:
    fitted = ("slope", "low", "high", "whole ladder", "theory", "unit")
    headings = columns("case", "method", "network", "count", "eps-solution", *fitted)
    rows: list[list[Cell]] = []
    for each in grown:
        line: list[Cell] = [None] * 3 if each.line is None else [each.line.slope, each.line.low, each.line.high]
        unit = each.unit or "power of 1/eps"
        whole = None if each.whole is None else each.whole.slope
        told = (each.case, each.method, each.network, each.count, each.against)
        rows.append([*told, *line, whole, each.theory, unit])
    spec = found.spec
    notes = [
        f"Least squares over accuracies of {spec.fit_from:g} (PDS), {spec.sampled_fit_from:g} (SPDS) and finer, with "
        "intervals of 95 %; for mu > 0 over counts past Delta. Intervals speak of the scatter about a straight line, "
        "not of its bend."
    ]
    return Table("Growth with 1/eps", headings, rows, notes)


def _exact_statements(found: Found, grown: Sequence[Growth]) -> list[Statement]:
    spec = found.spec
    convex, strongly = (setting.name for setting in spec.settings)

    def of(case: str, count: str, text: str) -> Statement:
        kept = [each for each in grown if (each.method, each.case, each.count) == ("PDS", case, count)]
        return keeps_to(f"PDS, {case}: {text}", kept, spec.tolerance)

    return [
        of(convex, "gradients", "gradients grow no faster than (1/eps)^0.5"),
        of(convex, "rounds", "rounds grow no faster than 1/eps"),
        of(strongly, "gradients", f"gradients grow no faster than log(1/eps), {_per_decade(found)} per decade"),
        of(strongly, "rounds", "rounds grow no faster than (1/eps)^0.5"),
    ]


def _per_decade(found: Found) -> str:
    return next((f"{run['per_decade']:.3g}" for run in found.exact_of(found.spec.settings[1]).values()), "-")


def _within_bounds(found: Found) -> Statement:
    """Where an accuracy was not reached, the run must have ended before the bound."""
    findings: list[bool | None] = []
    for run in found.exact.values():
        for kind in KINDS:
            for count, bound in zip(run["counts"][kind], run["bounds"][kind], strict=True):
                if count is None:
                    findings.append(None if run["iterations"] < bound["gradients"] else False)
                else:
                    findings.append(all(count[name] <= bound[name] for name in COUNTS))
    return Statement(
        "PDS: every count is no larger than the theorem's bound, on both kinds of eps-solution", all_of(findings)
    )


def _alike(found: Found, setting: Setting) -> Statement:
    """Of two-sided eps-solutions, where lines are fitted."""
    runs = list(found.exact_of(setting).values())
    worst = dict.fromkeys(COUNTS, 1.0)
    known = False
    for index, accuracy in enumerate(found.spec.accuracies):
        counts = [run["counts"]["two-sided"][index] for run in runs]
        if found.spec.is_fitted(accuracy) and None not in counts:
            known = True
            for name in COUNTS:
                own = [count[name] for count in counts]
                worst[name] = max(worst[name], max(own) / min(own))
    text = (
        f"PDS, {setting.name}: gradients (two-sided) differ by at most a factor of {_ALIKE:g} between the networks, "
        f"and rounds by more; found: {worst['gradients']:.3g} and {worst['rounds']:.3g}"
    )
    return Statement(text, worst["gradients"] <= _ALIKE < worst["rounds"] if known else None)


def _sampled_statements(found: Found, grown: Sequence[Growth]) -> list[Statement]:
    said = []
    for setting, power in zip(found.spec.settings, ("(1/eps)^2", "1/eps"), strict=True):
        rounds = "1/eps" if setting.mu == 0 else "(1/eps)^0.5"
        for count, name in (("samples", power), ("rounds", rounds)):
            kept = [each for each in grown if (each.method, each.case, each.count) == ("SPDS", setting.name, count)]
            of = " (eps asked for, and obtained)" if count == "samples" else ""
            said.append(
                keeps_to(f"SPDS, {setting.name}: {count} grow no faster than {name}{of}", kept, found.spec.tolerance)
            )
    return said


def _accurate(found: Found) -> Statement:
    """In expectation: means over the seeds."""
    findings: list[bool | None] = [
        float(np.mean(run[name])) <= min(task.accuracy, run[f"{name}_bound"])
        for task, run in found.sampled.items()
        for name in ("objective", "residual")
    ]
    text = "SPDS: objective error and ||A x||, means over the seeds, are within eps and the theorem's bounds"
    return Statement(text, all_of(findings))


def _few_samples(found: Found) -> Statement:
    known = [run for run in found.sampled.values() if run["samples_bound"] is not None]
    findings: list[bool | None] = [run["samples"] <= run["samples_bound"] for run in known]
    return Statement("SPDS, mu = 0: no more samples than N + 1352 m sigma^2 D^2/eps^2", all_of(findings))


def _samplers_agree(found: Found) -> list[Statement]:
    """Two ways of sampling with the same variance."""
    if len(found.spec.samplers) < 2:
        return []
    differences = []
    for setting in found.spec.settings:
        one, other = (found.sampled_of(setting, sampler) for sampler in found.spec.samplers[:2])
        for accuracy, run in one.items():
            for name in ("objective", "residual"):
                difference = float(np.mean(run[name])) - float(np.mean(other[accuracy][name]))
                differences.append(abs(difference) / accuracy)
    text = (
        f"SPDS: rows and noise of the same variance give the same errors, within {_AGREE:.0%} of eps; "
        f"found: {max(differences, default=0.0):.2%}"
    )
    return [Statement(text, max(differences) <= _AGREE if differences else None)]

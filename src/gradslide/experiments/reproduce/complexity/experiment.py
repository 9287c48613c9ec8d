"""`gradslide reproduce complexity`: gradients, rounds and samples against 1/eps, with the theory's
slopes.
"""

from functools import partial
from typing import Any

from gradslide.experiments.reproduce.complexity import plots
from gradslide.experiments.reproduce.complexity.fits import Found, growths
from gradslide.experiments.reproduce.complexity.problem import ComplexitySpec, spec_of
from gradslide.experiments.reproduce.complexity.runs import ExactTask, SampledTask, perform_exact, perform_sampled
from gradslide.experiments.reproduce.complexity.tables import statements, tables
from gradslide.experiments.reproduce.paper import Data
from gradslide.experiments.reproduce.report import Report
from gradslide.experiments.reproduce.runs import Bench
from gradslide.experiments.tables import Cell

_NOTES = (
    "Accuracies are relative to the optimum: eps = accuracy times f*. An eps-solution has f(x_bar) - f* <= eps and "
    "||A x_bar|| <= eps, f the sum of the agents' own f_i(x_bar_i): one-sided. Before the agents agree each fits its "
    "own rows, and f(x_bar) lies below f*; a two-sided one has |f(x_bar) - f*| <= eps too. Counts say from which outer "
    "iteration on it is one, to the end of the run.",
    "At most: by Theorem 1 with its R, one-sided; two-sided by Proposition 1, from which it follows, at ||z|| = 2 "
    "||z*||.",
    "The theory gives upper bounds: counts may grow more slowly. They may also grow faster for a while, where coarse "
    "accuracies come cheaper than the bound allows: then a fit can lie a little above the theory's slope.",
    "Where fits begin, their tolerance and the ridge were chosen after a look at first runs, so that fits show what "
    "comes past the transient and past Delta; the slope over the whole ladder stands beside. With a smaller ridge the "
    "built-in data is not far enough past Delta, and rounds and samples grow faster than in theory.",
    "What does not depend on the network is the bound on gradients. One-sided, measured gradients do, somewhat: "
    "||A x_bar|| decides, and lies below its bound by a margin of its own on each network.",
    "SPDS runs with the N, c and R of Theorem 2. Its samples and rounds follow from eps alone: what is measured is the "
    "error. sigma is an estimate at x_0 and at x*, the larger one; the theorem asks for a bound over the whole ball.",
    "Rows are drawn with replacement; of a large batch it is drawn how often each row comes, which is the same. With "
    "noise no row is drawn: normal noise of variance sigma^2/c_k is added to exact gradients, in place of the mean of "
    "c_k samples, which are counted all the same.",
)


def reproduce(bench: Bench, spec: ComplexitySpec | None = None) -> Report:
    spec = spec_of(bench.data) if spec is None else spec
    exact = bench.outcomes(exact_tasks(bench.data, spec), perform_exact)
    sampled = bench.outcomes(sampled_tasks(bench.data, spec), perform_sampled)
    return report_of(bench.data, Found(spec, exact, sampled))


def exact_tasks(data: Data, spec: ComplexitySpec) -> list[ExactTask]:
    return [
        ExactTask(data, setting, net, spec.accuracies, spec.beyond, spec.iterations, spec.rounds)
        for setting in spec.settings
        for net in spec.nets
    ]


def sampled_tasks(data: Data, spec: ComplexitySpec) -> list[SampledTask]:
    """Fine accuracies, which take longest, first."""
    return [
        SampledTask(data, setting, spec.nets[0], accuracy, spec.seeds, sampler)
        for setting, accuracies in zip(spec.settings, spec.sampled_accuracies, strict=True)
        for accuracy in reversed(accuracies)
        for sampler in spec.samplers
    ]


def report_of(data: Data, found: Found) -> Report:
    grown = growths(found)
    return Report(
        name="complexity",
        title="Gradients, rounds and samples against 1/eps",
        facts=_facts(data, found.spec),
        tables=tables(found, grown),
        statements=statements(found, grown),
        notes=_NOTES,
        found=_kept(found),
        figures={
            "complexity": partial(plots.plot_exact, found),
            "complexity-samples": partial(plots.plot_sampled, found),
        },
    )


def _facts(data: Data, spec: ComplexitySpec) -> dict[str, Cell]:
    setting = spec.settings[0]
    problem = f"logistic regression, {setting.agents} agents, in a ball of radius {setting.radius:g}"
    nets = (f"maximum degree {net.max_degree}, {net.edges} edges, seed {net.seed}" for net in spec.nets)
    return {
        "data": data.label,
        "problem": problem,
        "split": setting.split,
        "mu": ", ".join(f"{each.mu:g}" for each in spec.settings),
        "networks": "; ".join(nets),
        "coupling": "incidence",
        "seeds of SPDS": ", ".join(map(str, spec.seeds)),
        "tolerance of slopes": f"{spec.tolerance:.0%}",
    }


def _kept(found: Found) -> dict[str, Any]:
    spec = found.spec
    exact = [
        {"mu": task.setting.mu, "network": task.net.name, "accuracies": list(task.accuracies), **run}
        for task, run in found.exact.items()
    ]
    sampled = [
        {"mu": task.setting.mu, "accuracy": task.accuracy, "sampler": task.sampler, "seeds": list(spec.seeds), **run}
        for task, run in found.sampled.items()
    ]
    return {"pds": exact, "spds": sampled}

"""One run of a comparison, as plain tables that travel to another process and name the file of its
outcome.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gradslide._version import __version__
from gradslide.experiments.compare.spec import Comparison, Contender, Entry
from gradslide.experiments.parallel.cache import digest


@dataclass(frozen=True)
class Target:
    """What accuracies are measured against. size: |x*|."""

    objective: float
    size: float

    @property
    def scale(self) -> float:
        """What errors of the objective are relative to."""
        return abs(self.objective) or 1.0


@dataclass(frozen=True)
class ComparisonTask:
    """factor and value: the multiple of the default that is tried, and the number it comes to;
    None: the default.

    contents: digests of the files that it reads.
    """

    problem: Entry
    network: Entry
    condition: Entry
    method: Contender
    seed: int
    target: Target
    accuracies: list[float]
    disagreement_factor: float
    limits: dict[str, Any]
    clocks: dict[str, dict[str, float]]
    folder: Path
    data_dir: Path | None
    contents: tuple[str, str] = ("", "")
    factor: float | None = None
    value: float | None = None

    @property
    def block(self) -> tuple[str, str, str]:
        return self.problem.name, self.network.name, self.condition.name

    @property
    def key(self) -> str:
        """The same for the same run, whatever it is called, wherever its files are and whatever
        else is compared.
        """
        said = asdict(self)
        for entry in ("problem", "network", "condition", "method"):
            said[entry] = said[entry]["table"]
        for place in ("folder", "data_dir", "target"):
            del said[place]
        return digest({**said, "version": __version__})


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    kind: "done", "refused" (the method says why it cannot solve this), "failed" or "interrupted".
    reached: for each accuracy what had been spent, or None. error, disagreement: at the end,
    relative to |f*| and |x*|. curve: lists by name, thinned.
    """

    problem: str
    network: str
    condition: str
    method: str
    seed: int
    factor: float | None = None
    kind: str = "done"
    status: str = ""
    message: str = ""
    reached: list[dict[str, Any] | None] = field(default_factory=list)
    error: float | None = None
    disagreement: float | None = None
    warnings: list[str] = field(default_factory=list)
    parameters: dict[str, float | str] = field(default_factory=dict)
    costs: dict[str, Any] = field(default_factory=dict)
    curve: dict[str, list[Any]] = field(default_factory=dict)
    rows: float | None = None

    @classmethod
    def of(cls, task: ComparisonTask, **found: Any) -> "Outcome":
        return cls(*task.block, task.method.name, task.seed, task.factor, **found)

    @property
    def block(self) -> tuple[str, str, str]:
        return self.problem, self.network, self.condition


@dataclass(frozen=True)
class Contents:
    """Digests of the files of problems and of networks, by name; those that need no file are left
    out.
    """

    problems: dict[str, str] = field(default_factory=dict)
    networks: dict[str, str] = field(default_factory=dict)


def tasks_of(
    comparison: Comparison, targets: dict[str, Target], data_dir: Path | None, contents: Contents | None = None
) -> list[ComparisonTask]:
    """Every method with its default on every block. targets: of the problems that take part."""
    contents = contents or Contents()
    once = comparison.seeds[:1]
    return [
        ComparisonTask(
            problem=problem,
            network=network,
            condition=condition,
            method=method,
            seed=seed,
            target=targets[problem.name],
            accuracies=comparison.accuracies,
            disagreement_factor=comparison.disagreement_factor,
            limits=comparison.limits,
            clocks=comparison.clocks,
            folder=comparison.folder,
            data_dir=data_dir,
            contents=(contents.problems.get(problem.name, ""), contents.networks.get(network.name, "")),
        )
        for problem in comparison.problems
        if problem.name in targets
        for network in comparison.networks
        for condition in comparison.conditions
        for method in comparison.methods
        for seed in (comparison.seeds if method.is_random or condition.table else once)
    ]

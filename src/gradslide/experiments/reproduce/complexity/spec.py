"""What `gradslide reproduce complexity` is made of: accuracies, networks, seeds, limits."""

from dataclasses import dataclass
from typing import Any

from gradslide.experiments.reproduce.instance import Data
from gradslide.experiments.reproduce.spec import Net, packaged

_ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class Setting:
    """A problem, but for its data. mu: per agent."""

    agents: int
    split: str
    radius: float
    mu: float

    @property
    def name(self) -> str:
        return "mu = 0" if self.mu == 0 else f"mu = {self.mu:g}"


@dataclass(frozen=True)
class Spec:
    """The case mu = 0 comes first, then mu > 0. Lines are fitted over accuracies from `..._fit_from` on."""

    settings: tuple[Setting, Setting]
    nets: tuple[Net, ...]
    tolerance: float
    accuracies: tuple[float, ...]
    fit_from: float
    beyond: float
    iterations: int
    rounds: int
    sampled_accuracies: tuple[tuple[float, ...], tuple[float, ...]]
    sampled_fit_from: float
    seeds: tuple[int, ...]
    samplers: tuple[str, ...]

    def is_fitted(self, accuracy: float) -> bool:
        return accuracy <= self.fit_from * _ROUNDING

    def is_sampled_fitted(self, accuracy: float) -> bool:
        return accuracy <= self.sampled_fit_from * _ROUNDING


def spec_of(data: Data) -> Spec:
    """The packaged one, with the radius and the ridge that suit the data."""
    table = packaged("complexity")
    own, pds, spds = table[data.name], table["pds"], table["spds"]

    def setting(mu: float) -> Setting:
        return Setting(table["agents"], table["split"], own["radius"], mu)

    return Spec(
        settings=(setting(0.0), setting(own["mu"])),
        nets=tuple(
            Net(f"degree {degree}", degree, edges, seed, table["agents"]) for degree, edges, seed in table["networks"]
        ),
        tolerance=table["tolerance"],
        accuracies=_descending(pds["accuracies"]),
        fit_from=pds["fit_from"],
        beyond=pds["beyond"],
        iterations=pds["limits"]["iterations"],
        rounds=pds["limits"]["rounds"],
        sampled_accuracies=(
            _descending(spds["accuracies"]["convex"]),
            _descending(spds["accuracies"]["strongly_convex"]),
        ),
        sampled_fit_from=spds["fit_from"],
        seeds=tuple(spds["seeds"]),
        samplers=tuple(spds["samplers"]),
    )


def _descending(values: list[Any]) -> tuple[float, ...]:
    return tuple(sorted(map(float, values), reverse=True))

"""What was observed along a run."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, overload

from gradslide._support.html import rows_html
from gradslide.results.costs import Costs, work

# First records, and last ones, of a long history in a notebook.
_SHOWN = 5


@dataclass(frozen=True)
class Record:
    """One outer iteration: what had been spent, and what was observed. Metrics are None where they were thinned out.

    objective: sum of all f_i at the mean of the agents, or the maximum over z of a saddle point problem;
    local_objective: sum of f_i(x_i); residual: ||A x||, or how far A x is from where it must be; residual_scale: what a
    relative residual is relative to; lower: the best certified lower bound on the optimum so far; gap: objective less
    that (on a network with one set for all agents, at the point of it that is nearest to the mean); disagreement:
    max_i ||x_i - mean||; mean_norm: ||mean||. simulated_seconds: by a clock, or by each of several.
    """

    iteration: int
    gradients: int
    samples: int
    rounds: int
    control_rounds: int
    seconds: float
    operator_products: int = 0
    floats_sent: int = 0
    simulated_seconds: float | dict[str, float] | None = None
    objective: float | None = None
    local_objective: float | None = None
    residual: float | None = None
    disagreement: float | None = None
    mean_norm: float = 0.0
    residual_scale: float = 0.0
    lower: float | None = None
    gap: float | None = None

    @classmethod
    def of(cls, iteration: int, costs: Costs) -> "Record":
        """What had been spent by then, nothing observed."""
        spent = {name: count for name, count in costs.to_dict().items() if name in cls.__dataclass_fields__}
        return cls(iteration=iteration, **spent)


class History(Sequence[Record]):
    """The records of a run, in order."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records = list(records)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> "History": ...
    def __getitem__(self, index: int | slice) -> "Record | History":
        return History(self._records[index]) if isinstance(index, slice) else self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __repr__(self) -> str:
        return f"History({len(self)} records)"

    def _repr_html_(self) -> str:
        """For notebooks: the first records and the last, without columns in which there is nothing."""
        shown = self if len(self) <= 2 * _SHOWN else [*self[:_SHOWN], *self[-_SHOWN:]]
        columns = [name for name, column in self.to_dict().items() if any(column)]
        rows = [[getattr(record, name) for name in columns] for record in shown]
        if len(shown) < len(self):
            rows.insert(_SHOWN, ["..."] * len(columns))
        return rows_html(repr(self), columns, rows)

    def append(self, record: Record) -> None:
        self._records.append(record)

    def to_dict(self) -> dict[str, list[Any]]:
        """One list per column."""
        return {field.name: [getattr(record, field.name) for record in self] for field in fields(Record)}

    @classmethod
    def from_dict(cls, columns: dict[str, list[Any]]) -> "History":
        return cls(Record(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))

    def to_pandas(self) -> Any:
        """A DataFrame with one row per record (needs the extra `plot`)."""
        import pandas as pd

        return pd.DataFrame(self.to_dict())

    def plot(self, against: str | None = None, optimum: float | None = None) -> Any:
        """Objective (or its error, if the optimum is given) and disagreement against costs; a matplotlib figure.

        against: gradients by default, or samples for a run that took no exact gradients.
        """
        from gradslide._support.plotting import shown_once
        from gradslide.results.plots import plot_histories

        if against is None:
            against = work(self[-1:])[0]
        return shown_once(plot_histories({"": self}, against=(against,), optimum=optimum))

"""What was observed along a run."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, overload

from gradslide._support.html import rows_html
from gradslide._support.keywords import checked_arguments
from gradslide.results.costs import Costs, work

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

# First records, and last ones, of a long history in a notebook.
_SHOWN = 5


@dataclass(frozen=True)
class Record:
    """What had been spent and observed after one outer iteration.

    Metrics are None if they were not observed in this iteration.

    Attributes
    ----------
    iteration : int
        The outer iteration, from 1.
    gradients, samples, rounds, control_rounds, operator_products, floats_sent : int
        What had been spent; see `Costs`.
    seconds, simulated_seconds : float
        Time taken; see `Costs`.
    objective : float or None
        The sum of all f_i at the mean of the agents, or the maximum over z of a saddle point problem.
    local_objective : float or None
        The sum of f_i(x_i).
    residual : float or None
        norm(A x), or the distance of A x from the values that the constraints allow.
    disagreement : float or None
        max_i norm(x_i - mean).
    mean_norm : float
        The norm of the mean.
    residual_scale : float
        What a relative residual is relative to.
    lower : float or None
        The best certified lower bound on the optimum so far.
    gap : float or None
        The objective minus that bound; on a network with one set for all agents, at the point of it
        nearest to the mean.
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
        """Return a record of what has been spent, with nothing observed."""
        return cls(
            iteration=iteration,
            gradients=costs.gradients,
            samples=costs.samples,
            rounds=costs.rounds,
            control_rounds=costs.control_rounds,
            seconds=costs.seconds,
            operator_products=costs.operator_products,
            floats_sent=costs.floats_sent,
            simulated_seconds=copy(costs.simulated_seconds),
        )


class History(Sequence[Record]):
    """The records of a run, in order: a sequence of `Record`.

    Parameters
    ----------
    records : iterable of Record
        The records.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.Quadratic(np.ones((4, 1, 1)), np.arange(4.0)[:, None])
    >>> history = gs.solve(gs.Problem(loss), gs.Graph.ring(4), stop=gs.Stop(iterations=3)).history
    >>> history
    History(3 records)
    >>> history.to_dict()["iteration"]
    [1, 2, 3]
    """

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
        """Add a record."""
        self._records.append(record)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return one list per column."""
        return {field.name: [getattr(record, field.name) for record in self] for field in fields(Record)}

    @classmethod
    def from_dict(cls, columns: dict[str, list[Any]]) -> "History":
        """Return the history whose `to_dict` gave these columns."""
        return cls(Record(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a DataFrame with one row per record. Needs the extra `plot`."""
        import pandas as pd

        return pd.DataFrame(self.to_dict())

    @checked_arguments
    def plot(self, against: str | None = None, optimum: float | None = None) -> "Figure":
        """Plot the objective (or its error) and the disagreement against a cost.

        Parameters
        ----------
        against : str, optional
            A column; by default gradients, or samples if the run took no exact gradients.
        optimum : float, optional
            The optimal value; then errors of the objective are shown.

        Returns
        -------
        matplotlib.figure.Figure
            The figure. Needs the extra `plot`.
        """
        from gradslide._support.plotting import shown_once
        from gradslide.results.plots import plot_histories

        if against is None:
            against = work(self[-1:])[0]
        return shown_once(plot_histories({"": self}, against=(against,), optimum=optimum))

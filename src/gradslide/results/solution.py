"""What a run gives back."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gradslide._support import storage
from gradslide._support.errors import InputError
from gradslide._support.html import facts_html
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array
from gradslide.results.certificate import KKT, Certificate, SaddleKKT, residuals_from_dict
from gradslide.results.costs import Costs, traffic, work
from gradslide.results.history import History
from gradslide.results.status import Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gradslide.regression.fitted import FittedRegression

_KIND, _VERSION = "solution", 1


@dataclass(frozen=True)
class Solution:
    """What a run returns: the answers, how it ended, what it cost, and what was observed.

    Attributes
    ----------
    x : array of shape (agents here, d)
        The answers of the agents in this process: the output named `output`.
    agents : sequence of int
        The numbers of these agents.
    output : str
        The output asked for, else the one that the method recommends or, without a network, the
        first that reached the targets.
    outputs : mapping of str to array
        All outputs of the method by name.
    status : Status
        How the run ended.
    costs : Costs
        What it spent.
    history : History
        The records along the run.
    mean : array of shape (d,)
        The mean of all agents' answers, or of those here if the others cannot be observed.
    dual : array or None
        Multipliers: on a network in node form (A^T z = Lap s), of shape (agents here, d); otherwise
        z, of shape (k,).
    y : array or None
        The average of the gradients y_k, if the method stores it.
    hessian : array of shape (d, d) or None
        The Hessian of the sum of all f_i at x, ridge included and penalties not, if the method
        computed it and the root of the tree is in this process. Its inverse estimates the covariance
        of a maximum likelihood estimate.
    certificate : Certificate or None
        The certified bounds on the optimum.
    certificate_reason : str
        Why there is no certified gap; empty if there is one.
    kkt : KKT, SaddleKKT or None
        Residuals of the optimality conditions. On a network `KKT`, if no gap is certified or they
        were a target; otherwise `SaddleKKT`. They are no certificate. None if gradients are sampled,
        or the method has no multipliers.
    ray : array or None
        Why there is no solution. With `Status.INFEASIBLE`: multipliers of shape (k,) of a combination
        of the constraints that no x in X fulfils. With `Status.UNBOUNDED`: a direction of shape
        (m, d) along which the objective falls for ever. None if the method found no such proof.
    parameters : mapping of str to float or str
        What the method was given or found; of `Auto` also which method it chose, and why.
    settings : mapping
        How the solution was made: method, problem, network, coupling, version.
    warnings : tuple of str
        What makes the answer doubtful.
    model : FittedRegression or None
        The fitted regression, if tables were given: see `gs.fit`. Then x has its coefficients.
    rows_of_all : callable or None
        Gathers the rows of all agents if they live in several processes; used by `gather`.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.Quadratic(np.ones((4, 1, 1)), np.arange(4.0)[:, None])
    >>> solution = gs.solve(gs.Problem(loss), gs.Graph.ring(4))
    >>> solution.status.short
    'converged'
    >>> bool(abs(solution.mean[0] + 1.5) < 1e-2)
    True
    """

    x: Array
    agents: Sequence[int]
    output: str
    outputs: Mapping[str, Array]
    status: Status
    costs: Costs
    history: History
    dual: Array | None = None
    y: Array | None = None
    hessian: Array | None = None
    certificate: Certificate | None = None
    certificate_reason: str = "this method gives no certificate"
    kkt: KKT | SaddleKKT | None = None
    ray: Array | None = None
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    mean: Array = field(default_factory=lambda: np.empty(0))
    model: "FittedRegression | None" = None
    rows_of_all: Callable[[Array], Array] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mean.size == 0:
            object.__setattr__(self, "mean", np.mean(self.x, axis=0))

    @property
    def objective(self) -> float | None:
        """The sum of all f_i at the mean of the agents in the last record; None if unknown."""
        return self._last("objective")

    @property
    def disagreement(self) -> float | None:
        """max_i norm(x_i - mean) in the last record; None if unknown, or without a network."""
        return self._last("disagreement")

    @property
    def gap(self) -> float | None:
        """The certified gap in the last record; None if there is none."""
        return self._last("gap")

    def _last(self, name: str) -> float | None:
        return getattr(self.history[-1], name) if len(self.history) else None

    def gather(self) -> Array:
        """Return the answers of all agents, of shape (m, d).

        If agents live in several processes, all of these must call it.
        """
        return self.x if self.rows_of_all is None else self.rows_of_all(self.x)

    def gathered(self) -> "Solution":
        """Return the solution with the rows of all agents; all processes must call it."""
        rows = self.rows_of_all
        if rows is None:
            return self
        outputs = {name: rows(output) for name, output in self.outputs.items()}
        return replace(
            self,
            x=outputs[self.output],
            agents=range(len(outputs[self.output])),
            outputs=outputs,
            dual=None if self.dual is None else rows(self.dual),
            y=None if self.y is None else rows(self.y),
            rows_of_all=None,
        )

    @checked_arguments
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to one file, atomically; `gradslide.load` reads it.

        Parameters
        ----------
        path : path-like
            The file.

        Returns
        -------
        Path
            Where it was written.
        """
        arrays = {f"output.{name}": array for name, array in self.outputs.items()}
        names = ("dual", "y", "hessian", "mean", "ray")
        arrays |= {name: array for name in names if (array := getattr(self, name)) is not None}
        arrays["agents"] = np.asarray(self.agents)
        meta = {
            "output": self.output,
            "status": self.status.name,
            "costs": self.costs.to_dict(),
            "history": self.history.to_dict(),
            "certificate": None if self.certificate is None else asdict(self.certificate),
            "certificate_reason": self.certificate_reason,
            "kkt": None if self.kkt is None else self.kkt.to_dict(),
            "parameters": dict(self.parameters),
            "settings": dict(self.settings),
            "warnings": list(self.warnings),
            "model": None if self.model is None else self.model.to_dict(),
        }
        storage.require_writable(Path(path).parent)
        return storage.write(path, _KIND, _VERSION, meta, arrays)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists, for JSON."""
        return {
            "status": self.status.name,
            "message": self.status.value,
            "output": self.output,
            "costs": self.costs.to_dict(),
            "final": {name: column[-1] for name, column in self.history.to_dict().items()} if len(self.history) else {},
            "history": self.history.to_dict(),
            "certificate": None if self.certificate is None else asdict(self.certificate),
            "certificate_reason": self.certificate_reason,
            "kkt": None if self.kkt is None else self.kkt.to_dict(),
            "mean": np.asarray(self.mean).tolist(),
            "ray": None if self.ray is None else np.asarray(self.ray).tolist(),
            "parameters": dict(self.parameters),
            "settings": dict(self.settings),
            "warnings": list(self.warnings),
            "model": None if self.model is None else {**self.model.to_dict(), "by_site": dict(self.model.by_site)},
        }

    @checked_arguments
    def plot(self, optimum: float | None = None) -> "Figure":
        """Plot what was reached against gradients (or samples) and rounds (or products with A).

        Parameters
        ----------
        optimum : float, optional
            The optimal value; then errors of the objective are shown.

        Returns
        -------
        matplotlib.figure.Figure
            The figure. Needs the extra `plot`.
        """
        from gradslide._support.plotting import shown_once
        from gradslide.results.plots import plot_histories

        spent = [self.costs]
        title = f"{self.settings.get('method', '').split('(')[0]}: {self.status.value}".removeprefix(": ")
        against = (*work(spent), traffic(spent))
        return shown_once(plot_histories({"": self.history}, against=against, optimum=optimum, title=title))

    def to_sklearn(self) -> Any:
        """Return the fitted regression as an estimator of scikit-learn that predicts the same.

        Returns
        -------
        estimator
            See `FittedRegression.to_sklearn`.

        Raises
        ------
        InputError
            If the solution is not of tables.
        """
        rule, remedy = "to_sklearn needs a fitted regression", "fit one with gs.fit, or use gradslide.sklearn"
        if self.model is None:
            raise InputError(rule, "a solution of a problem without tables", remedy)
        return self.model.to_sklearn()

    def release(
        self,
        epsilon: float,
        delta: float,
        *,
        adjacency: Literal["replace", "add"] = "replace",
        ledger: str | os.PathLike[str] | None = None,
        budget: tuple[float, float] | None = None,
    ) -> "FittedRegression":
        """Return the fitted regression with noise, for others: differentially private.

        The noise is Gaussian, with the least deviation for which the promise is proved. The fit must
        have been declared with ``for_release=True``.

        Parameters
        ----------
        epsilon, delta : float
            The promise: for data sets that differ in one row, the probabilities of any set of
            releases differ by at most the factor exp(epsilon), and delta.
        adjacency : {"replace", "add"}
            Whether a row is replaced, or added or removed.
        ledger : path-like, optional
            A file that accounts for all releases of the same rows.
        budget : tuple of float, optional
            (epsilon, delta) for all releases in the ledger together.

        Returns
        -------
        FittedRegression
            With coefficients and declaration only.

        Raises
        ------
        InputError
            If a premise of the proof does not hold, or the budget would be exceeded.

        Notes
        -----
        With the ridge lam on all coefficients, G a bound on the norm of the gradient of a row in scaled
        columns, and a certified gap of at most tau, answers for neighbouring data sets are no further
        apart than 2 G/lam + 2 sqrt(2 tau/lam) ("add": G/lam).
        """
        rule, remedy = "a release needs a fitted regression", "fit one with gs.fit and for_release=True"
        if self.model is None:
            raise InputError(rule, "a solution of a problem without tables", remedy)
        return self.model.released(epsilon, delta, adjacency=adjacency, ledger=ledger, budget=budget)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return facts_html("Solution", solution_facts(self))

    def __repr__(self) -> str:
        facts = [f"{name}={getattr(self.costs, name)}" for name in (*work([self.costs]), traffic([self.costs]))]
        last = self.history[-1] if len(self.history) else None
        if last and last.objective is not None:
            facts.append(f"objective={last.objective:.6g}")
        if last and last.disagreement is not None:
            facts.append(f"disagreement={last.disagreement:.3g}")
        elif last and last.residual is not None:
            facts.append(f"residual={last.residual:.3g}")
        if last and last.gap is not None:
            facts.append(f"gap={last.gap:.3g}")
        elif isinstance(self.kkt, KKT):
            facts.append(f"stationarity={self.kkt.stationarity:.3g}")
        if isinstance(self.kkt, SaddleKKT):
            facts.append(f"kkt={self.kkt.largest:.2g}")
        if self.warnings:
            facts.append(f"warnings={len(self.warnings)}")
        return f"Solution({self.status.name}: {self.status.value}; {', '.join(facts)})"


@checked_arguments
def load(path: str | os.PathLike[str]) -> Solution:
    """Read a solution that `Solution.save` wrote.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    Solution
        The solution.

    Raises
    ------
    InputError
        If the file is not a solution, or of a later version.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.Quadratic(np.ones((4, 1, 1)), np.arange(4.0)[:, None])
    >>> solution = gs.solve(gs.Problem(loss), gs.Graph.ring(4), stop=gs.Stop(iterations=5))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = gs.load(solution.save(pathlib.Path(folder) / "solution.npz"))
    >>> np.array_equal(again.x, solution.x)
    True
    """
    meta, arrays = storage.read(path, _KIND, _VERSION)
    outputs = {name.removeprefix("output."): array for name, array in arrays.items() if name.startswith("output.")}
    return Solution(
        x=outputs[meta["output"]],
        agents=_numbers(meta, arrays),
        output=meta["output"],
        outputs=outputs,
        status=Status[meta["status"]],
        costs=Costs(**meta["costs"]),
        history=History.from_dict(meta["history"]),
        dual=arrays.get("dual"),
        y=arrays.get("y"),
        hessian=arrays.get("hessian"),
        certificate=None if (proof := meta.get("certificate")) is None else Certificate(**proof),
        certificate_reason=meta["certificate_reason"],
        kkt=None if (residuals := meta.get("kkt")) is None else residuals_from_dict(residuals),
        ray=arrays.get("ray"),
        parameters=meta["parameters"],
        settings=meta["settings"],
        warnings=tuple(meta.get("warnings", ())),
        mean=arrays.get("mean", np.empty(0)),
        model=_model(meta.get("model")),
    )


def _model(card: Mapping[str, Any] | None) -> "FittedRegression | None":
    from gradslide.regression.fitted import FittedRegression

    return None if card is None else FittedRegression.from_dict(card)


def _numbers(meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> Sequence[int]:
    """The agents of a saved solution: a range where they are one, as earlier releases wrote them."""
    if "agents" in meta:
        return range(*meta["agents"])
    agents = arrays["agents"].tolist()
    whole = range(agents[0], agents[0] + len(agents))
    return whole if agents == list(whole) else tuple(agents)


def solution_facts(solution: Solution) -> dict[str, str]:
    """How a run ended, what it cost and what was reached."""
    costs, last = solution.costs, solution.history[-1] if len(solution.history) else None
    spent = [*work([costs]), traffic([costs]), "control_rounds", "floats_sent", "operator_products"]
    facts = {
        "status": f"{solution.status.short}: {solution.status.value}",
        "outer iterations": f"{last.iteration if last else 0:,}",
        **{name.replace("_", " "): f"{count:,}" for name in spent if (count := getattr(costs, name))},
        "seconds": f"{costs.seconds:.3g}",
    }
    if last is not None:
        seen = {
            "objective": last.objective,
            "disagreement": last.disagreement,
            "residual": last.residual if last.disagreement is None else None,
            "gap (certified)": last.gap,
        }
        facts |= {name: f"{value:.6g}" for name, value in seen.items() if value is not None and value < math.inf}
    if solution.certificate is not None and solution.certificate.gap < math.inf:
        facts["optimum"] = _between(solution.certificate, exact=not costs.operator_products)
    elif isinstance(solution.kkt, KKT):
        facts["stationarity"] = f"{solution.kkt.stationarity:.3g}"
    if isinstance(solution.kkt, SaddleKKT):
        facts["KKT residuals"] = str(solution.kkt)
    return facts | {f"warning {number}": text for number, text in enumerate(solution.warnings, 1)}


def _between(proof: Certificate, *, exact: bool) -> str:
    """Where the optimum lies. exact: the answer is where it must be, whatever the residual says."""
    if exact or proof.residual == 0:
        return f"between {proof.lower:.6g} and {proof.upper:.6g}"
    return f"at least {proof.lower:.6g}; {proof.upper:.6g} at the answer, which misses its constraints a little"

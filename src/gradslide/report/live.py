"""A run that goes on, as the content of a page: what was recorded so far."""

import threading
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gradslide.experiments.files import finite, versions
from gradslide.experiments.per_agent import Frames, drawn, split_costs
from gradslide.experiments.run import Listener, NetworkRun
from gradslide.graphs.graph import Graph
from gradslide.report.agent import run_of
from gradslide.report.folder import content
from gradslide.report.metrics import metrics_text
from gradslide.report.run import run_document
from gradslide.results.costs import Costs
from gradslide.results.history import History, Record

_NOT_YET = "the run goes on"


@dataclass
class _Network:
    """One network's run so far. done: all of it, once it has ended."""

    name: str
    graph: Graph
    history: History = field(default_factory=History)
    frames: dict[str, Any] | None = None
    done: NetworkRun | None = None

    def results(self) -> dict[str, Any]:
        """As results.json has a run."""
        if self.done is not None:
            return self.done.to_dict()
        last = self.history[-1] if len(self.history) else Record.of(0, Costs())
        so_far: dict[str, Any] = {
            "costs": {name: getattr(last, name, 0) for name in Costs.__dataclass_fields__},
            "final": asdict(last),
            "history": self.history.to_dict(),
            "message": _NOT_YET,
            "certificate": None,
            "certificate_reason": _NOT_YET,
            "kkt": None,
            "warnings": [],
            "output": "",
            "settings": {},
            "parameters": {},
        }
        return run_of(so_far, self.name)

    def network(self) -> dict[str, Any]:
        """As networks.json has it."""
        if self.done is not None:
            return drawn(self.name, self.graph, self.done.frames, self.done.by_agent)
        spent = self.history[-1:]
        # Agents that count for themselves are not seen together: one's costs are not those of all.
        by_agent = split_costs(spent[0], self.graph) if self.frames is not None and len(spent) else {}
        return drawn(self.name, self.graph, self.frames, by_agent)


class LivePage(Listener):
    """Told of a run in one thread, asked for its content in others. `version` grows with what it
    was told.
    """

    def __init__(self, name: str, title: str, *, kind: str = "run") -> None:
        self._name, self._title, self._kind = name, title, kind
        self._problem = ""
        self._optimum: float | None = None
        self._networks: list[_Network] = []
        self._lock = threading.Lock()
        self.version = 0
        self.is_finished = False

    def started(self, name: str, graph: Graph, problem: str, optimum: float | None) -> None:
        with self._lock:
            self._problem, self._optimum = problem, optimum
            self._networks.append(_Network(name, graph))
            self.version += 1

    def recorded(self, record: Record, frames: Frames | None) -> None:
        with self._lock:
            network = self._networks[-1]
            if not len(network.history) or record.iteration > network.history[-1].iteration:
                network.history.append(record)
                network.frames = None if frames is None else frames.to_dict()
                self.version += 1

    def ended(self, run: NetworkRun) -> None:
        with self._lock:
            self._networks[-1].done = run
            self.version += 1

    def finish(self) -> None:
        """Nothing more will come."""
        with self._lock:
            self.is_finished = True
            self.version += 1

    def content(self) -> tuple[int, dict[str, Any]]:
        """The version, and the content of a page."""
        with self._lock:
            # What takes long is done on copies, while the run goes on.
            version, is_finished = self.version, self.is_finished
            networks = [replace(network, history=network.history[:]) for network in self._networks]
            problem, optimum = self._problem, self._optimum
        results = {
            "name": self._name,
            "title": self._title,
            "problem": problem,
            "optimum": optimum,
            "runs": [network.results() for network in networks],
        }
        document = run_document(results, [network.network() for network in networks], kind=self._kind)
        return version, finite(content([document], versions(), live=True, finished=is_finished))

    def metrics(self) -> str:
        """How far the run is, in the text format of Prometheus."""
        with self._lock:
            last = {each.name: each.history[-1] for each in self._networks if len(each.history)}
            ended = {each.name: each.done.solution.status.name for each in self._networks if each.done is not None}
            return metrics_text(last, ended, is_finished=self.is_finished)

"""One agent's run: it meets its neighbours, solves with them, keeps a log, and writes its results."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradslide._support import storage
from gradslide._support.errors import InputError
from gradslide._support.hashing import digest
from gradslide._version import __version__
from gradslide.experiments.agent.audit import AUDIT, AuditLog
from gradslide.experiments.agent.build import Agent, Place, build_agent, build_place, require_unrevoked
from gradslide.experiments.agent.builder import BuilderFailed
from gradslide.experiments.agent.spec import AgentSpec
from gradslide.experiments.files import RESULT, as_json, write_model
from gradslide.experiments.run import Listener, NetworkRun
from gradslide.experiments.tables import Table, columns
from gradslide.graphs.graph import Graph
from gradslide.network.peers.links import Links
from gradslide.network.peers.network import Peers, public_reason
from gradslide.network.peers.rounds import set_aside
from gradslide.results.solution import Solution, solution_facts

LOG = "agent.log"
LOCK = "agent.lock"
CHECKPOINT = "checkpoint.npz"
SOLUTION = "solution.npz"

_log = logging.getLogger("gradslide.agent")


@dataclass(frozen=True)
class AgentRun:
    """What one agent has in the end. has_targets: whether it was to reach any."""

    spec: AgentSpec
    network: Peers
    has_targets: bool
    solution: Solution

    @property
    def number(self) -> int:
        """The agent's own among all."""
        return self.network.agents[0]

    @property
    def m(self) -> int:
        return self.network.m

    @property
    def graph(self) -> Graph:
        return self.network.graph

    @property
    def fulfilled(self) -> bool:
        """Whether the run did what was asked."""
        return self.solution.status.fulfils(self.has_targets)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.spec.name,
            "run": self.spec.run,
            "agent": self.number,
            "agents": self.m,
            "edges": self.graph.edges.tolist(),
            "neighbours": [neighbour.name for neighbour in self.spec.neighbours],
            "names": {self.number: self.spec.name, **self.network.names},
            "secure_sums": self.spec.secure_sums,
            "traffic": {
                kind: {"messages": each.messages, "numbers": each.numbers, "bytes": each.bytes}
                for kind, each in self.network.traffic.items()
            },
            "x": self.solution.x[0].tolist(),
            **self.solution.to_dict(),
        }


def checkpoint_of(spec: AgentSpec) -> Path | None:
    """Where the agent keeps what it needs to go on, if it does."""
    return spec.output.dir / CHECKPOINT if spec.output.checkpoint else None


@contextmanager
def running_agent(
    spec: AgentSpec, *, progress: bool = False, resume: bool = True, listener: Listener | None = None
) -> Iterator[AgentRun]:
    """Everything but the files of the results, which are written inside of the block.

    At its end the agent says that it has finished, and waits for neighbours that have not.

    Parameters
    ----------
    spec : AgentSpec
    progress : bool
        Whether to show a line of progress.
    resume : bool
        Go on from the checkpoint, if there is one.
    listener : Listener, optional
        Told of every record.
    """
    listener = Listener() if listener is None else listener
    storage.require_writable(spec.output.dir)
    checkpoint = checkpoint_of(spec)
    with _alone(spec.output.dir), _logged(spec):
        place = build_place(spec)
        with _failures_told(spec, place):
            audit = AuditLog(spec.output.dir / AUDIT, place.own)
            with _audited(audit, spec):
                place.check()
                require_unrevoked(spec, place.keys)
                agent = build_agent(spec)
                audit.add("started", **_started(spec, place, agent))
                if checkpoint is not None and not resume and (aside := set_aside(checkpoint)) is not None:
                    _log.info("the former checkpoint is kept as %s; run %s starts anew", aside.name, spec.run)
                network = Peers(
                    place.own,
                    spec.listen,
                    place.neighbours,
                    run_id=spec.run,
                    diameter=spec.diameter,
                    settings=agent.settings,
                    deadline=spec.deadline,
                    meet=spec.meet,
                    checkpoint=checkpoint,
                    explain=agent.explain,
                    secure_sums=spec.secure_sums,
                )
        with _audited(audit, spec, network), network:
            network.session.connect()
            require_unrevoked(spec, network.public_keys)
            audit.add("connected", agents=network.m, keys=list(network.public_keys), edges=network.graph.edges.tolist())
            _log.info("knows the network: agent %d of %d, %r", network.agents[0], network.m, network.graph)
            listener.started(spec.name, network.graph, agent.described, None)
            solution = agent.solve(
                network,
                callback=lambda record, x: listener.recorded(record, None),
                progress=spec.name if progress else False,
                checkpoint=checkpoint,
                checkpoint_seconds=spec.output.checkpoint_seconds,
                resume=resume,
            )
            told = solution.status.value, solution.costs.rounds, solution.costs.control_rounds, solution.costs.seconds
            _log.info("agent %s ends: %s; %d rounds and %d of control in %.2f s", spec.name, *told)
            for warning in solution.warnings:
                _log.warning(warning)
            listener.ended(NetworkRun(spec.name, "", network.graph, solution))
            _log.info("audit log: %s", audit.add("ended", **_ended(spec, network, solution)))
            yield AgentRun(spec, network, agent.has_targets, solution)


def _started(spec: AgentSpec, place: Place, agent: Agent) -> dict[str, Any]:
    """What the agent takes part with: settings as neighbours compare them."""
    settings = json.dumps(agent.settings, sort_keys=True).encode()
    return {
        "name": spec.name,
        "run": spec.run,
        "gradslide": __version__,
        "problem": agent.described,
        "settings": digest(settings),
        "schema": agent.schema_hash,
        "secure sums": str(spec.secure_sums),
        "neighbours": {each.name: each.public_key for each in place.neighbours},
    }


def _ended(spec: AgentSpec, network: Peers, solution: Solution) -> dict[str, Any]:
    """How it ended, and what left the site."""
    return {
        "run": spec.run,
        "status": solution.status.name,
        "rounds": solution.costs.rounds,
        "gradients": solution.costs.gradients,
        "bytes sent": sum(each.bytes for each in network.traffic.values()),
        "sent": {kind: each.bytes for kind, each in network.traffic.items()},
        "result": digest(np.ascontiguousarray(solution.x).tobytes()) if solution.model is None else solution.model.hash,
    }


@contextmanager
def _audited(audit: AuditLog, spec: AgentSpec, network: Peers | None = None) -> Iterator[None]:
    """Failures are events, too."""
    try:
        yield
    except BaseException as error:
        sent = {} if network is None else {"bytes sent": sum(each.bytes for each in network.traffic.values())}
        with suppress(OSError):  # on a full disk this error is the one to tell
            audit.add("failed", run=spec.run, kind=type(error).__name__, **sent)
        raise


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refuse a second process of the same agent."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = storage.locked(folder / LOCK, waits=False)
    except OSError:
        got = f"another process that writes into {folder}"
        raise InputError("an agent must run once only", got, "wait until that has ended") from None
    with lock:
        yield


@contextmanager
def _failures_told(spec: AgentSpec, place: Place) -> Iterator[None]:
    """Tell neighbours of an agent that fails before it meets them."""
    try:
        yield
    except Exception as error:
        reason = f"its builder failed ({error.kind})" if isinstance(error, BuilderFailed) else public_reason(error)
        for told in place.told_of_failures():
            Links(place.own, spec.listen, told, run_id=spec.run, settings={}, deadline=spec.deadline).fail(reason)
        raise


class _Log(logging.FileHandler):
    """A log file. If the disk is full lines are lost: what cannot do without the disk says so."""

    def handleError(self, record: logging.LogRecord) -> None:
        return

    def close(self) -> None:
        with suppress(OSError):
            super().close()


@contextmanager
def _logged(spec: AgentSpec) -> Iterator[None]:
    """What happens meanwhile, here and at the neighbours, goes into the log, which is added to."""
    spec.output.dir.mkdir(parents=True, exist_ok=True)
    handler = _Log(spec.output.dir / LOG, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    whole = logging.getLogger("gradslide")
    level = whole.level
    whole.addHandler(handler)
    whole.setLevel(logging.INFO)
    names = ", ".join(neighbour.name for neighbour in spec.neighbours)
    _log.info("agent %s starts run %s, gradslide %s; neighbours: %s", spec.name, spec.run, __version__, names)
    try:
        yield
    except BaseException as error:
        _log.error("agent %s ends: %s: %s", spec.name, type(error).__name__, error)
        raise
    finally:
        whole.setLevel(level)
        whole.removeHandler(handler)
        handler.close()


def to_json(run: AgentRun) -> str:
    return as_json(run.to_dict())


def write_agent(run: AgentRun) -> list[Path]:
    """Write everything into the agent's folder; the paths."""
    folder, history = run.spec.output.dir, run.solution.history.to_dict()
    table = Table("history", columns(*history), list(zip(*history.values(), strict=True)))
    model = run.solution.model
    written = [] if model is None else write_model(model, folder)
    return [
        *written,
        run.solution.save(folder / SOLUTION),
        storage.write_atomically(folder / RESULT, to_json(run).encode()),
        storage.write_atomically(folder / "history.csv", table.csv().encode()),
    ]


def facts(run: AgentRun) -> dict[str, str]:
    """What it cost and what was reached, as far as the agents agreed on it."""
    return {"agent": f"number {run.number}, {run.m} in all", **solution_facts(run.solution)}

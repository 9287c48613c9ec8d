"""The dry run of an agent: keys, files, columns, and which neighbours can be reached; nothing is started."""

from collections.abc import Callable
from dataclasses import dataclass

from gradslide._support import storage
from gradslide._support.errors import InputError
from gradslide.experiments.agent.audit import AUDIT, verified
from gradslide.experiments.agent.build import Agent, build_agent, build_place, require_unrevoked
from gradslide.experiments.agent.builder import BuilderFailed
from gradslide.experiments.agent.spec import AgentSpec
from gradslide.network.peers.neighbour import require_address, why_not_free, why_not_reached

_PATIENCE = 3.0


@dataclass(frozen=True)
class Check:
    """what: what was looked at. is_fine: None where a later start may mend it. text: what was found."""

    what: str
    is_fine: bool | None
    text: str

    @property
    def verdict(self) -> str:
        """In one word."""
        return {True: "fine", False: "WRONG", None: "not yet"}[self.is_fine]


def checks(spec: AgentSpec) -> list[Check]:
    """Look at everything that can be known before the neighbours are there."""
    found = [
        _checked("keys", lambda: _keys(spec)),
        _checked("data", lambda: _data(build_agent(spec))),
        _checked("results", lambda: _results(spec)),
    ]
    if spec.listen is not None:
        found.append(_listening(spec.listen))
    return found + [_reached(each.name, each.address) for each in spec.neighbours]


def _checked(what: str, look: Callable[[], str]) -> Check:
    try:
        return Check(what, True, look())
    except (InputError, BuilderFailed) as error:
        return Check(what, False, str(error))


def _keys(spec: AgentSpec) -> str:
    place = build_place(spec)
    place.check()
    require_unrevoked(spec, place.keys)
    return f"{place.own.public}, and those of {len(place.neighbours)} neighbours"


def _data(agent: Agent) -> str:
    return f"{agent.described}; columns {agent.schema_hash}" if agent.schema_hash else agent.described


def _results(spec: AgentSpec) -> str:
    storage.require_writable(spec.output.dir)
    log = spec.output.dir / AUDIT
    lines = len(verified(log)) if log.exists() else 0
    return f"{spec.output.dir} can be written to; audit log of {lines} lines"


def _listening(address: str) -> Check:
    if (wrong := _misspelt("listen", address)) is not None:
        return wrong
    if reason := why_not_free(address):
        return Check("listen", False, f"{address}: {reason}; stop what uses it, or take another")
    return Check("listen", True, f"{address} is free")


def _misspelt(what: str, address: str) -> Check | None:
    """What is wrong with the form of an address, if anything is."""
    try:
        require_address("an address", address)
    except InputError as error:
        return Check(what, False, str(error))
    return None


def _reached(name: str, address: str | None) -> Check:
    what = f"neighbour {name}"
    if address is None:
        return Check(what, True, "it dials this agent")
    if (wrong := _misspelt(what, address)) is not None:
        return wrong
    if reason := why_not_reached(address, _PATIENCE):
        return Check(what, None, f"nothing listens at {address} ({reason}); it may not be started yet")
    return Check(what, True, f"something listens at {address}")

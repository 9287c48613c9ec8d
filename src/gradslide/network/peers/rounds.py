"""Rounds of exchanges over links: each says where its agent is, and the first ones are remembered for a restart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradslide._support.errors import InputError, require
from gradslide._support.storage import checkpoint_memory
from gradslide._support.types import Array
from gradslide.network.peers.errors import PeerError
from gradslide.network.peers.links import Judge, Links
from gradslide.network.peers.message import Place, headed, parted
from gradslide.network.peers.packing import packed, unpacked


class Rounds:
    """Opens the links when they are first needed.

    The opening is what arrived before the first outer iteration. An agent that is started again goes through it once
    more, while its neighbours are far ahead: then it comes from the checkpoint, nothing is sent, and the links are only
    opened where the run goes on. checkpoint: where that of this agent is, or is going to be. meet: seconds to wait for
    neighbours to appear.
    """

    def __init__(self, links: Links, checkpoint: Path | None, meet: float) -> None:
        self._links, self._meet = links, meet
        self._checkpoint = checkpoint
        self._is_open = False
        self._opening: list[dict[str, Array]] = []
        self._common = 0
        self._records = checkpoint is not None
        self._replayed: int | None = None
        self._found: dict[str, Any] = {}
        self._remembered = 0
        if checkpoint is not None and checkpoint.exists():
            self._found = _network_memory(checkpoint)
            by_name = unpacked(self._found["opening"])
            rounds = range(max((len(each) for each in by_name.values()), default=0))
            self._opening = [{name: each[round] for name, each in by_name.items()} for round in rounds]
            self._replayed, self._records = 0, False

    def exchange(
        self, place: Place, content: Mapping[str, Array], sizes: Mapping[str, int] | None = None
    ) -> dict[str, Array]:
        """One round: what every neighbour says, by name. sizes: of that, where they are known."""
        judges = {name: self._judge(name, place, None if sizes is None else sizes[name]) for name in content}
        if self._replayed is None:
            arrived = self._exchanged({name: headed(place, each) for name, each in content.items()}, judges)
        else:
            arrived = self._remembered_round(content, self._replayed)
            self._replayed += 1
            if any(judges[name](message) for name, message in arrived.items()):
                raise self._other_run("a run that is begun in another way")
        return {name: parted(message)[1] for name, message in arrived.items()}

    def _judge(self, name: str, place: Place, size: int | None) -> Judge:
        """Who is in another place of the algorithm went astray; what is no message of this place is thrown away."""

        def judge(message: Array) -> str:
            there, said = parted(message) if message.ndim == 1 else (None, message)
            if message.dtype != np.float64 or there is None:
                return f"{message.dtype} {message.shape}, which says nothing"
            if there != place:
                raise self._astray(name, f"at {there}; this agent is at {place}")
            return "" if size in (None, said.size) else f"{said.size} numbers instead of {size}"

        return judge

    def _exchanged(self, messages: dict[str, Array], judges: dict[str, Judge]) -> dict[str, Array]:
        if not self._is_open:
            self._is_open = True
            self._links.open(deadline=self._meet)
        arrived = self._links.exchange(messages, judges)
        if self._records:
            self._opening.append(arrived)
        return arrived

    def _remembered_round(self, content: Mapping[str, Array], round: int) -> dict[str, Array]:
        if round == len(self._opening):
            raise self._other_run("a run that does not go on from it")
        arrived = self._opening[round]
        if arrived.keys() != content.keys():
            raise self._other_run(f"other neighbours ({', '.join(arrived)} there)")
        return arrived

    def _astray(self, name: str, where: str) -> Exception:
        if self._replayed is not None:
            return self._other_run("a run that is begun in another way")
        reason = f"it is in another place of the algorithm: {where}"
        return PeerError(name, self._links.round, f"{reason}; give all agents the same method, size and release")

    def _other_run(self, got: str) -> InputError:
        remedy = "give solve the same method and that checkpoint, or remove the file"
        return InputError(f"a run must go on from {self._checkpoint} as it was begun", got, remedy)

    def is_common_so_far(self) -> None:
        """What arrived until now is part of the opening of every run over these links."""
        self._common = len(self._opening) if self._replayed is None else self._replayed

    def begin(self) -> None:
        """A new run: its opening begins."""
        if self._replayed is None:
            del self._opening[self._common :]
            self._records = self._checkpoint is not None

    def end_opening(self) -> None:
        self._records = False

    def memory(self) -> dict[str, Any]:
        rule, remedy = "the network must know where the checkpoint is", "give Peers(checkpoint=...) the path, too"
        require(self._checkpoint is not None, rule, "none", remedy)
        self.end_opening()
        if self._replayed is not None:
            return {name: self._found[name] for name in ("round", "opening", "kept")}
        names = self._opening[0] if self._opening else ()
        opening = {name: {round: each[name] for round, each in enumerate(self._opening)} for name in names}
        self._remembered = self._links.round
        return {"round": self._remembered, "opening": packed(opening), "kept": packed(self._links.kept())}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Go on from the round where a memory was taken."""
        rule = "a run among peers goes on from a checkpoint that was there when its network was made"
        require(self._replayed is not None, rule, "a later one", "make a new network, or give another path")
        self._replayed, self._is_open = None, True
        self._links.open(memory["round"], kept=unpacked(memory["kept"]), deadline=self._meet)

    def saved(self) -> None:
        """The last memory is on disk."""
        self._links.checkpointed(self._remembered)

    def close(self, reason: str) -> None:
        self._links.close(reason)


def _network_memory(checkpoint: Path) -> dict[str, Any]:
    """What this network gave as its memory when the checkpoint was written."""
    memory = checkpoint_memory(checkpoint)
    found = memory.get("environment", memory.get("setting"))["network"]
    rule = f"checkpoint {checkpoint} must be one of an agent among peers"
    require(isinstance(found, dict) and "opening" in found, rule, "that of another network", "give another path")
    return dict(found)

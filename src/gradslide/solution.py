"""What a run gives back."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gradslide import storage
from gradslide._types import Array
from gradslide.certificate import KKT, Certificate
from gradslide.costs import Costs, traffic, work
from gradslide.history import History
from gradslide.status import Status

_KIND, _VERSION = "solution", 1


@dataclass(frozen=True)
class Solution:
    """The answers of the agents here, how the run ended, what it cost and what was observed.

    x: (agents here, d), the output named `output`: the one asked for, else the one that the method recommends, or
    (without a network) that reached the targets; outputs: all of them by name. dual: multipliers, or None: on a network
    in node form (A^T z = Lap s), (agents here, d); else z, (k,). y: average of the gradients y_k, where the method
    keeps it. certificate: a certified gap where there is one; else None, and `certificate_reason` says why. kkt: on a
    network without a certified gap (or where it was a target), how far the conditions of optimality are from holding,
    which is no certificate; None where gradients are sampled. parameters: numbers that the method was given or found.
    warnings: what makes the answer doubtful, in words.
    """

    x: Array
    agents: range
    output: str
    outputs: Mapping[str, Array]
    status: Status
    costs: Costs
    history: History
    dual: Array | None = None
    y: Array | None = None
    certificate: Certificate | None = None
    certificate_reason: str = "this method gives no certificate"
    kkt: KKT | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def mean(self) -> Array:
        """Mean of the agents here."""
        return np.mean(self.x, axis=0)

    def gather(self) -> Array:
        """The answers of all agents, (m, d)."""
        return self.x

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to one file, atomically; `gs.load` reads it."""
        arrays = {f"output.{name}": array for name, array in self.outputs.items()}
        arrays |= {name: array for name in ("dual", "y") if (array := getattr(self, name)) is not None}
        meta = {
            "agents": [self.agents.start, self.agents.stop],
            "output": self.output,
            "status": self.status.name,
            "costs": self.costs.to_dict(),
            "history": self.history.to_dict(),
            "certificate": None if self.certificate is None else asdict(self.certificate),
            "certificate_reason": self.certificate_reason,
            "kkt": None if self.kkt is None else asdict(self.kkt),
            "parameters": dict(self.parameters),
            "settings": dict(self.settings),
            "warnings": list(self.warnings),
        }
        storage.require_writable(Path(path).parent)
        return storage.write(path, _KIND, _VERSION, meta, arrays)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        return {
            "status": self.status.name,
            "message": self.status.value,
            "output": self.output,
            "costs": self.costs.to_dict(),
            "final": {name: column[-1] for name, column in self.history.to_dict().items()} if len(self.history) else {},
            "history": self.history.to_dict(),
            "certificate": None if self.certificate is None else asdict(self.certificate),
            "kkt": None if self.kkt is None else asdict(self.kkt),
            "mean": np.asarray(self.mean).tolist(),
            "parameters": dict(self.parameters),
            "settings": dict(self.settings),
            "warnings": list(self.warnings),
        }

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
        if self.warnings:
            facts.append(f"warnings={len(self.warnings)}")
        return f"Solution({self.status.name}: {self.status.value}; {', '.join(facts)})"


def load(path: str | os.PathLike[str]) -> Solution:
    """Read a solution that `Solution.save` wrote."""
    meta, arrays = storage.read(path, _KIND, _VERSION)
    outputs = {name.removeprefix("output."): array for name, array in arrays.items() if name.startswith("output.")}
    return Solution(
        x=outputs[meta["output"]],
        agents=range(*meta["agents"]),
        output=meta["output"],
        outputs=outputs,
        status=Status[meta["status"]],
        costs=Costs(**meta["costs"]),
        history=History.from_dict(meta["history"]),
        dual=arrays.get("dual"),
        y=arrays.get("y"),
        certificate=None if (proof := meta.get("certificate")) is None else Certificate(**proof),
        certificate_reason=meta["certificate_reason"],
        kkt=None if (residuals := meta.get("kkt")) is None else KKT(**residuals),
        parameters=meta["parameters"],
        settings=meta["settings"],
        warnings=tuple(meta.get("warnings", ())),
    )

"""The commands for audit logs. Arguments only."""

from pathlib import Path
from typing import Annotated

import typer

from gradslide.cli.shared import Json, require_peers, show

audit_app = typer.Typer(no_args_is_help=True, help="Audit logs of agents: what they did, in a chain of signed lines.")


@audit_app.command("verify")
def verify(
    log: Annotated[Path, typer.Argument(help="The audit.jsonl in the results of an agent.")],
    key: Annotated[
        Path | None, typer.Option("--key", help="The NAME.public of the agent that must have signed it.")
    ] = None,
    json_: Json = False,
) -> None:
    """Check that no line of an audit log was changed, removed or inserted, and show its events."""
    import json

    require_peers()
    from gradslide.experiments.agent.audit import verified
    from gradslide.experiments.tables import Cell, Table, columns
    from gradslide.network.peers.keys import read_public

    entries = verified(log, None if key is None else read_public(key))
    if json_:
        facts = [{"number": each.number, "time": each.time, "event": each.event, **each.facts} for each in entries]
        print(json.dumps({"entries": facts, "hash": entries[-1].hash}))
        return
    rows: list[list[Cell]] = [[each.number, each.time, each.event, _shown(each.facts)] for each in entries]
    show(Table("Audit log", columns("number", "time", "event", "facts"), rows).rich())
    print(f"unbroken: {len(entries)} lines, signed by {entries[0].key}")
    if key is None:
        print("that key is from the log itself, and a forger could choose it: give --key NAME.public")
    print(f"last hash: {entries[-1].hash}")


def _shown(facts: object) -> str:
    """The short facts of an event."""
    if not isinstance(facts, dict):
        return ""
    return ", ".join(f"{name} {value}" for name, value in facts.items() if isinstance(value, str | int | float))

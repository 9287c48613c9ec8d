"""The commands for agents in processes of their own: keys, agent, local. Arguments only."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gradslide._support.errors import InputError
from gradslide.cli.audit import audit_app
from gradslide.cli.report import Live, LiveAt, live_address, live_page
from gradslide.cli.shared import OK, STOPPED_SHORT, USER_ERROR, DataDir, Json, Quiet, note, require_peers, show

AGENT_FILE = Path("AGENT.toml")
# Seconds that neighbours may take to finish before the user hears that they have not.
_SOON = 2.0

keys_app = typer.Typer(no_args_is_help=True, help="Keys of agents: who an agent is to its neighbours.")


def register(app: typer.Typer) -> None:
    """Add the commands to the program's."""
    app.add_typer(keys_app, name="keys")
    app.add_typer(audit_app, name="audit")
    app.command()(agent)
    app.command()(local)


@keys_app.command("new")
def keys_new(
    name: Annotated[str, typer.Argument(help="Of the agent; its files are NAME.secret and NAME.public.")],
    folder: Annotated[Path, typer.Option("--folder", "-d", help="Where the files go.")] = Path(),
    replace: Annotated[bool, typer.Option("--replace", help="Keep files that are there as NAME.secret.1 ...")] = False,
) -> None:
    """Make a key pair: the secret key stays here, the public key is for the neighbours.

    Nothing is overwritten.
    """
    require_peers()
    from gradslide.network.peers.keys import make_key_pair

    pair = make_key_pair(name, folder, replace=replace)
    print(f"secret key: {folder / name}.secret, for this agent's eyes only; never send it to anybody")
    print(f"public key: {folder / name}.public; send it to the neighbours, or let them paste this line:")
    print(f'public_key = "{pair.public}"')


@keys_app.command("show")
def keys_show(secret: Annotated[Path, typer.Argument(help="A NAME.secret file.")]) -> None:
    """Print the public key that belongs to a secret one."""
    require_peers()
    from gradslide.network.peers.keys import read_secret

    print(read_secret(secret).public)


def agent(
    spec: Annotated[Path, typer.Argument(help="The agent's TOML file.")] = AGENT_FILE,
    init: Annotated[bool, typer.Option("--init", help="Write a commented file to fill in, and start nothing.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the results; overrides the spec.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew where a checkpoint is there already.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Look at keys, files, columns and neighbours, and start nothing.")
    ] = False,
    live: Live = False,
    live_at: LiveAt = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one agent, here, with neighbours that run elsewhere.

    Each agent keeps its data; only sums or iterates travel, encrypted. With [data] and [model] it fits
    a regression to a table, else it solves what a builder returns. Every agent ends with its own
    results and logs. Restarted after a failure, it goes on from its checkpoint.
    """
    if init:
        _init(spec)
        raise typer.Exit(OK)
    require_peers()
    if check:
        raise typer.Exit(_check(spec))
    from dataclasses import replace

    from gradslide.experiments.agent.audit import AUDIT
    from gradslide.experiments.agent.builder import BuilderFailed
    from gradslide.experiments.agent.run import LOG, checkpoint_of, facts, running_agent, to_json, write_agent
    from gradslide.experiments.agent.spec import read_agent
    from gradslide.experiments.tables import facts_table
    from gradslide.network.peers.errors import LinksEnded, PeerError
    from gradslide.network.peers.network import Diverged

    parsed = read_agent(spec)
    if out is not None:
        parsed = replace(parsed, output=replace(parsed.output, dir=out))
    run = None
    try:
        with (
            live_page(
                live_address(live, live_at), parsed.name, f"Agent {parsed.name}, run {parsed.run}", "agent"
            ) as shown,
            running_agent(parsed, progress=not quiet, resume=not fresh, listener=shown) as run,
        ):
            written = [*write_agent(run), parsed.output.dir / LOG, parsed.output.dir / AUDIT]
            if json_:
                print(to_json(run), flush=True)
            elif not quiet:
                if run.solution.model is not None:
                    print(run.solution.model.summary())
                show(facts_table(f"{parsed.name}, run {parsed.run}", facts(run)))
                print("written:", *(f"  {path}" for path in written), sep="\n", flush=True)
            if late := run.network.finish(_SOON):
                names = ", ".join(late)
                note(f"this agent has finished; it stays for neighbours that have not: {names} (Ctrl-C: leave now)")
    except BuilderFailed as error:
        print(f"{error.report}error: {error}", file=sys.stderr)
        raise typer.Exit(USER_ERROR) from None
    except (PeerError, LinksEnded, Diverged) as error:
        print(f"error: {error}", file=sys.stderr)
        kept = checkpoint_of(parsed)
        if kept is not None and kept.exists():
            note(f"checkpoint kept: {kept}; the same command{' without --fresh' * fresh} goes on from there")
        raise typer.Exit(STOPPED_SHORT) from None
    except KeyboardInterrupt:
        if run is None:
            raise
        note("left; all results are written")
    assert run is not None
    raise typer.Exit(OK if run.fulfilled else STOPPED_SHORT)


def local(
    spec: Annotated[Path, typer.Argument(help="A TOML file, as for `gradslide run`.")],
    peers: Annotated[
        bool, typer.Option("--peers", help="One process for each agent, on this machine (needed).")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the results; overrides the spec.")] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the agents' folders (keys, specs, rows, logs) beside the results.")
    ] = False,
    data_dir: DataDir = None,
    live: Live = False,
    live_at: LiveAt = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Try out a network of processes on this machine, one for each agent.

    Each agent gets a key, a spec and its own rows. They connect over loopback and solve what the
    spec describes; the results are then measured with all of their answers in one place.
    """
    if not peers:
        remedy = f"`gradslide run {spec}` simulates it in one process"
        raise InputError("local needs --peers, one process for each agent", "none", remedy)
    require_peers()
    from dataclasses import replace

    from gradslide.experiments.agent.local.run import AGENTS, AgentFailed, run_local
    from gradslide.experiments.files import to_json, write_results
    from gradslide.experiments.spec import read_spec
    from gradslide.experiments.summary import summary_table

    parsed = read_spec(spec)
    if out is not None:
        parsed = replace(parsed, output=replace(parsed.output, dir=out))
    try:
        with live_page(live_address(live, live_at), parsed.name, parsed.title) as shown:
            results = run_local(parsed, data_dir=data_dir, progress=not quiet, keep=keep, listener=shown)
    except AgentFailed as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(USER_ERROR if error.is_mistake else STOPPED_SHORT) from None
    written = write_results(results) + [parsed.output.dir / AGENTS] * keep
    if json_:
        print(to_json(results))
    elif not quiet:
        print(results.spec.title)
        summary = summary_table(results.to_dict())
        show(summary.rich())
        print(*summary.notes, sep="\n")
        print("written:", *(f"  {path}" for path in written), sep="\n")
    raise typer.Exit(OK if results.fulfilled else STOPPED_SHORT)


def _check(path: Path) -> int:
    """Show what a dry run finds, and return the exit code."""
    from gradslide.experiments.agent.check import checks
    from gradslide.experiments.agent.spec import read_agent
    from gradslide.experiments.tables import Table, columns

    found = checks(read_agent(path))
    rows = [[each.what, each.verdict, each.text] for each in found]
    show(Table(f"Dry run of {path}", columns("what", "verdict", "found"), rows).rich())
    return OK if all(each.is_fine is not False for each in found) else USER_ERROR


def _init(path: Path) -> None:
    """Write the template, but over nothing."""
    from gradslide._support import storage
    from gradslide.experiments.agent.spec import template_text

    if path.exists():
        raise InputError("--init overwrites nothing", f"{path}, which exists", "give another name, or move it away")
    storage.require_writable(path.parent)
    storage.write_atomically(path, template_text().encode())
    print(f"written: {path}. Next:")
    print("  1. gradslide keys new NAME, and exchange the public keys with your neighbours")
    print(f"  2. fill in {path}; gradslide agent {path} --check looks at it")
    print(f"  3. gradslide agent {path}, at every site; they wait for each other")

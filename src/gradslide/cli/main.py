"""The command line: arguments only; the work is done elsewhere.

Exit codes: 0 what was asked for was reached, 1 a mistake of the user, 2 stopped short of it.
"""

import errno
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gradslide._support.errors import InputError
from gradslide._version import __version__
from gradslide.cli import peers as cli_peers
from gradslide.cli import regression as cli_regression
from gradslide.cli import report as cli_report
from gradslide.cli.data import data_app
from gradslide.cli.report import Live, LiveAt, live_address, live_page
from gradslide.cli.shared import OK, STOPPED_SHORT, USER_ERROR, DataDir, Json, Quiet, fits, note, show

# Some releases of typer depend on click, others carry it inside: its base exception is reached through a public one.
UsageMistake: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
DRAWING = Path("gradslide-results/network.png")
REPRODUCED = Path("gradslide-results/reproduction")

app = typer.Typer(
    name="gradslide",
    help="Convex optimization by many agents on a network without a centre.\n\n"
    "Start with `gradslide run`: it solves a built-in problem over three networks and shows what that took. "
    "Exit codes: 0 reached what was asked, 1 your input needs a correction, 2 stopped short of what was asked.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(data_app, name="data")
cli_peers.register(app)
cli_report.register(app)
cli_regression.register(app)


@app.command()
def run(
    spec: Annotated[
        Path | None,
        typer.Argument(help="A TOML file; without one, the built-in main job.", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the results; overrides the spec.")] = None,
    data_dir: DataDir = None,
    fresh: Annotated[
        bool, typer.Option("--fresh/--resume", help="Start anew where a checkpoint is there already.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option("-n", help="Share the agents among so many processes of MPI, started here.", show_default=False),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="With MPI: seconds after which a process without a sign of life is lost.")
    ] = 30.0,
    live: Live = False,
    live_at: LiveAt = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Solve what a spec file describes, over each of its networks.

    Without SPEC: constrained logistic regression over 100 agents and three networks, on built-in
    data. `gradslide run --quiet` prints nothing; `gradslide run --json | jq .` is for programs. The
    format of a spec is shown by `gradslide info --spec`.
    """
    from contextlib import nullcontext
    from dataclasses import replace

    from gradslide._support.interrupts import expect_interrupts
    from gradslide.experiments.files import to_json, write_results
    from gradslide.experiments.run import checked, run_spec
    from gradslide.experiments.spec import main_job, read_spec
    from gradslide.experiments.summary import spread, summary_table
    from gradslide.network.mpi.launch import launch, mark_done, this_world

    parsed = main_job() if spec is None else read_spec(spec)
    if out is not None:
        parsed = replace(parsed, output=replace(parsed.output, dir=out))
    if processes is not None:
        checked(parsed, processes)
        raise typer.Exit(_launched(launch(_without_n(sys.argv[1:]), processes)))
    expect_interrupts()
    world = this_world(timeout)
    # MPI has taken the signal for itself.
    expect_interrupts()
    is_shown = not quiet and (world is None or world.is_first)
    say = note if is_shown else lambda text: None
    address = live_address(live, live_at) if world is None or world.is_first else None
    with (
        nullcontext() if world is None else world.guarded(lambda: mark_done(USER_ERROR)),
        live_page(address, parsed.name, parsed.title) as shown,
    ):
        results = run_spec(
            parsed,
            data_dir=data_dir,
            progress=is_shown,
            resume=not fresh,
            say=say,
            group=world,
            listener=shown,
        )
        code = OK if results.fulfilled else STOPPED_SHORT
        written = write_results(results) if world is None or world.is_first else []
        if world is not None:
            world.end()
    if world is not None:
        if not world.is_first:
            raise typer.Exit(code)
        mark_done(code)
    if json_:
        print(to_json(results))
    elif is_shown:
        print(results.spec.title)
        for each in results.runs:
            if each.solution.model is not None:
                print(each.solution.model.summary())
        summary = summary_table(results.to_dict())
        show(summary.rich())
        print(*summary.notes, sep="\n")
        if moved := spread(results.to_dict()):
            print(moved)
        if not results.fulfilled:
            print("stopped short of what was asked: raise the limit in [stop]")
        print("written:", *(f"  {path}" for path in written), sep="\n")
        print(f"as a page: gradslide report {parsed.output.dir}")
    raise typer.Exit(code)


@app.command()
def compare(
    spec: Annotated[
        Path | None,
        typer.Argument(help="A TOML file; without one, a small built-in comparison.", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the results; overrides the spec.")] = None,
    data_dir: DataDir = None,
    processes: Annotated[
        int | None, typer.Option("--processes", "-j", help="Runs at the same time; one per core by default.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do again what was done before.")] = False,
    example: Annotated[
        bool, typer.Option("--spec", help="Print the built-in comparison: a commented example of the format.")
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods over problems, networks and conditions.

    Each method runs with its default step and with the best of a grid. Finished runs are cached:
    the same command continues an interrupted comparison. A method that fails is shown as failed.
    Exit code 0: all runs were made; 2: interrupted, or some failed.
    """
    from dataclasses import replace

    from gradslide.experiments.compare.files import to_json, write_comparison
    from gradslide.experiments.compare.run import run_comparison
    from gradslide.experiments.compare.spec import example_comparison, example_text, read_comparison
    from gradslide.experiments.compare.tables import report
    from gradslide.experiments.parallel.pool import progress_of_runs

    if example:
        print(example_text(), end="")
        raise typer.Exit(OK)
    parsed = example_comparison() if spec is None else read_comparison(spec)
    if out is not None:
        parsed = replace(parsed, output=replace(parsed.output, dir=out))
    if processes is not None:
        parsed = replace(parsed, processes=processes)
    say = note if not quiet else lambda text: None
    with progress_of_runs(not quiet) as show:
        compared = run_comparison(parsed, data_dir=data_dir, fresh=fresh, say=say, show=show)
    text = report(compared)
    written = write_comparison(compared, text)
    if json_:
        print(to_json(compared))
    elif not quiet:
        print(text)
        print("written:", *(f"  {path}" for path in written), sep="\n")
        print(f"as a page: gradslide report {parsed.output.dir}")
    raise typer.Exit(OK if compared.is_complete else STOPPED_SHORT)


@app.command()
def reproduce(
    what: Annotated[
        list[str], typer.Argument(help="table1, table2, figure1, invariance, complexity; or all.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = REPRODUCED,
    data_dir: DataDir = None,
    full: Annotated[
        bool, typer.Option("--full", help="DCS up to the paper's 8,000 rounds, SDCS up to 400: hours.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option("--processes", "-j", help="Runs at the same time; one per core by default.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Do again what was done before, after a change of the code, say.")
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the paper's experiments, and some beyond them: its tables beside ours.

    On ijcnn1, the paper's data, where it is found; on built-in data otherwise. Finished runs are
    cached: the same command goes on from there. Writes Markdown, JSON, CSV, PNG and SVG.
    """
    from gradslide.experiments.reproduce.catalogue import chosen, reports
    from gradslide.experiments.reproduce.report import write_report

    made = reports(
        chosen(what),
        out=out,
        data_dir=data_dir,
        full=full,
        processes=processes,
        fresh=fresh,
        quiet=quiet,
        say=note,
        command=shlex.join(["gradslide", *sys.argv[1:]]),
    )
    try:
        for report in made:
            written = write_report(report, out)
            if json_:
                print(report.to_json())
            elif not quiet:
                print(report.text)
                print("\nwritten:", *(f"  {path}" for path in written), sep="\n")
    except KeyboardInterrupt:
        note(f"interrupted: the same command{' without --fresh' * fresh} goes on from here")
        raise typer.Exit(STOPPED_SHORT) from None


@app.command()
def graph(
    topology: Annotated[
        str,
        typer.Argument(
            help="random, ring, path, star, complete, grid, torus, hypercube, regular, small_world, geometric; "
            "or an edge list file."
        ),
    ] = "ring",
    agents: Annotated[
        int, typer.Option("--agents", "-m", help="Number of agents (not for grid, torus, hypercube).")
    ] = 100,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", help="A parameter of the topology, e.g. --set max_degree=9 --set edges=235."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", help=f"Draw it into this file (.png, .svg, .pdf). Default: {DRAWING}.", show_default=False
        ),
    ] = None,
    draw: Annotated[bool, typer.Option("--draw/--no-draw", help="Whether to draw it.")] = True,
    json_: Json = False,
) -> None:
    """Describe a network (degrees, diameter, spectrum, mixing) and draw it.

    Examples: `gradslide graph ring -m 50`, `gradslide graph random -s max_degree=4 -s edges=150
    --plot net.png`, `gradslide graph grid -s rows=8 -s cols=12`.
    """
    from gradslide.experiments.build import describe_topology
    from gradslide.experiments.files import write_figure
    from gradslide.experiments.tables import facts_table
    from gradslide.graphs.display import in_words, plot_graph
    from gradslide.graphs.mixing import spectral_gaps

    made = describe_topology(topology, agents, option or [])
    facts = {**made.describe(), **{f"gap_{name}": gap for name, gap in spectral_gaps(made).items()}}
    if json_:
        print(json.dumps(facts, indent=1))
    else:
        show(facts_table(repr(made), in_words(facts)))
    if plot is not None:
        write_figure(plot_graph(made), plot)
    elif draw and not json_:
        try:
            plot = write_figure(plot_graph(made), DRAWING)
        except InputError as reason:
            note(f"no drawing: {reason}")
    if plot is not None and not json_:
        print(f"written:\n  {plot}")


@app.command()
def info(
    spec: Annotated[
        bool,
        typer.Option("--spec", help="Print the spec of the main job: a commented example of the format."),
    ] = False,
    bench: Annotated[
        bool,
        typer.Option("--bench", help="Measure gradients, exchanges and iterations on this machine: up to a minute."),
    ] = False,
    json_: Json = False,
) -> None:
    """Versions, extras that are installed, and where data is looked for.

    `gradslide info --bench` measures what this machine does, and says what follows from it.
    """
    from gradslide.experiments.info import installation
    from gradslide.experiments.spec import main_job_text
    from gradslide.experiments.tables import facts_table

    if spec and bench:
        raise InputError("--spec and --bench are two requests", "both", "give one of them")
    if spec:
        print(main_job_text(), end="")
    elif bench:
        _bench(json_)
    elif json_:
        print(json.dumps(installation(), indent=1))
    else:
        show(facts_table("gradslide", installation()))


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Entry point: a user's mistake is one line on standard error, never a traceback."""
    # Pictures go into files: no window is needed.
    os.environ.setdefault("MPLBACKEND", "Agg")
    try:
        code = app(arguments, standalone_mode=False)
    except typer.Exit as end:
        code = end.exit_code
    except typer.Abort:
        code = STOPPED_SHORT
    except UsageMistake as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
        else:
            print(f"error: {error.format_message().rstrip('.')}; see `gradslide --help`", file=sys.stderr)
        code = USER_ERROR
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        code = USER_ERROR
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        place = f"{error.filename}: " if error.filename else ""
        print(f"error: {place}{error.strerror}; free some space, then run the command again", file=sys.stderr)
        code = STOPPED_SHORT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = STOPPED_SHORT
    # typer turns Ctrl-C into 130.
    sys.exit(STOPPED_SHORT if code == 130 else code if isinstance(code, int) else OK)


def _bench(json_: bool) -> None:
    from rich.text import Text

    try:
        from gradslide.experiments.machine import measure_machine, progress_lines

        with progress_lines() as progress:
            measured = measure_machine(progress=progress)
    except KeyboardInterrupt:
        note("interrupted before all measurements were made: no results; run the command again")
        raise typer.Exit(STOPPED_SHORT) from None
    if json_:
        print(json.dumps(measured.to_dict(), indent=1))
        return
    table = measured.table()
    print(table.title)
    if fits(table.rich()):
        show(table.rich())
    else:
        # In a narrow column, words would break.
        show(measured.table(with_meanings=False).rich())
        show(Text("\n".join(measured.meanings)))
    show(Text("\n".join(table.notes)))


def _without_n(arguments: list[str]) -> list[str]:
    """The command line of each of the processes that -n starts."""
    kept: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word == "-n":
            next(rest)
        elif not (word.startswith("-n") and word[2:].lstrip("=").isdigit()):
            kept.append(word)
    return kept


def _launched(code: int | None) -> int:
    if code is None:
        print("error: the processes did not come to their end; what they said is above", file=sys.stderr)
    return STOPPED_SHORT if code is None else code

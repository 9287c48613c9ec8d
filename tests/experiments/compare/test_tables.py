"""What a comparison says: medians, best steps, winners whoever they are, and the files it leaves."""

import json
import math
import os
import subprocess

import pandas as pd
import pytest
from comparisons import (
    MODULE,
    compared,
    methods,
    outcome,
    several,
    spent,
    strict_json,
    without_processes,
    write_comparison,
)
from specs import exit_code

from gradslide.experiments.compare.files import to_json, with_new_names, with_old_names
from gradslide.experiments.compare.files import write_comparison as write_files
from gradslide.experiments.compare.summary import blocks
from gradslide.experiments.compare.tables import (
    costs_table,
    duration,
    findings,
    notes,
    overview_table,
    report,
    survival_table,
    times_table,
)
from gradslide.experiments.parallel.pool import progress_of_runs

MISSED = None


def cells(table):
    """Rows of a table by their first cell, without padding."""
    rows = [[cell.strip() for cell in row] for row in table.cells]
    return {row[0]: row[1:] for row in rows}


def headings(table):
    return table.headings


def only_block(*outcomes, **changed):
    (block,) = blocks(compared(*outcomes, **changed))
    return block


def figures(block):
    """(gradients, rounds) per accuracy, by label."""
    return {
        line.label: [None if found is None else (found.work, found.rounds) for found in line.reached]
        for line in block.lines
    }


# Medians over seeds


def test_medians_are_taken_of_each_cost_by_itself():
    seeds = [(10, 7), (30, 5), (20, 9)]
    block = only_block(*(outcome("dsgd", spent(*costs), MISSED, seed=i) for i, costs in enumerate(seeds)))
    assert figures(block) == {"dsgd": [(20, 7), None]}


def test_control_rounds_are_rounds():
    block = only_block(outcome("pds", spent(10, 7) | {"control_rounds": 100}, MISSED))
    assert figures(block) == {"pds": [(10, 107), None]}


def test_the_median_of_two_is_between_them():
    block = only_block(outcome("dsgd", spent(10, 4), MISSED), outcome("dsgd", spent(20, 8), MISSED, seed=1))
    assert figures(block) == {"dsgd": [(15, 6), None]}


@pytest.mark.parametrize(
    ("gradients", "expected"),
    [
        ([10, None], None),
        ([10, None, None], None),
        ([10, 20, None], 20),
        ([30, 10, 20, None], 25),
        ([30, 10, None, None], None),
        ([50, 10, 40, None, None], 50),
    ],
)
def test_a_seed_that_never_gets_there_counts_as_infinitely_much(gradients, expected):
    runs = [
        outcome("dsgd", MISSED if count is None else spent(count, count + 1, wan=count / 10), MISSED, seed=seed)
        for seed, count in enumerate(gradients)
    ]
    (line,) = only_block(*runs).lines
    if expected is None:
        assert line.reached == [None, None]
    else:
        found = line.reached[0]
        assert (found.work, found.rounds) == (expected, expected + 1)
        assert found.seconds == {"wan": pytest.approx(expected / 10)}


def test_errors_in_the_end_are_medians_too():
    errors = [(0.1, 3.0), (0.3, 1.0), (None, None)]
    runs = [
        outcome("dsgd", MISSED, MISSED, seed=seed, error=error, disagreement=disagreement)
        for seed, (error, disagreement) in enumerate(errors)
    ]
    (line,) = only_block(*runs).lines
    assert (line.error, line.disagreement) == (0.3, 3.0)


def test_a_sample_counts_as_a_rows_share_of_a_gradient():
    by_samples = outcome("dsgd", spent(0, 40, samples=80), MISSED, rows=8.0)
    mixed = outcome("spds", spent(2, 40, samples=4), MISSED, rows=8.0)
    without_rows = outcome("sdcs", spent(0, 40, samples=3), MISSED)
    block = only_block(
        by_samples,
        mixed,
        without_rows,
        method=several("method", 'name = "dsgd"', 'name = "spds"\nN = 3', 'name = "sdcs"'),
    )
    assert figures(block) == {"dsgd": [(10, 40), None], "spds": [(2.5, 40), None], "sdcs": [(3, 40), None]}
    assert cells(costs_table(block))["spds"][:2] == ["2.5*", "40*"]


# The best of the grid


def grid_of(*reached, method="nids", errors=None):
    """The default, and as many multiples of it."""
    factors = [None, 0.5, 2.0, 4.0][: len(reached)]
    errors = errors or [1e-3] * len(reached)
    return [
        outcome(method, *each, factor=factor, error=error)
        for each, factor, error in zip(reached, factors, errors, strict=True)
    ]


@pytest.mark.parametrize(
    ("reached", "best"),
    [
        # Most accuracies first, whatever they cost.
        ([(spent(1, 1), MISSED), (spent(99, 99), spent(999, 999))], 0.5),
        # Then the least work at the finest, whatever the coarser ones and the rounds cost.
        ([(spent(1, 1), spent(50, 10)), (spent(9, 9), spent(40, 90))], 0.5),
        # Then the fewest rounds.
        ([(spent(5, 5), spent(50, 90)), (spent(5, 5), spent(50, 80))], 0.5),
        ([(spent(5, 5), spent(50, 90)), (spent(5, 5), spent(50, 100)), (spent(1, 1), spent(50, 70))], 2.0),
        # The default wins ties.
        ([(spent(5, 5), spent(50, 90)), (spent(5, 5), spent(50, 90))], None),
        ([(spent(5, 5), spent(50, 90)), (spent(5, 5), MISSED), (MISSED, MISSED)], None),
    ],
)
def test_the_best_step_is_chosen(reached, best):
    block = only_block(*grid_of(*reached))
    chosen = [line for line in block.lines if line.is_best]
    assert [line.factor for line in chosen] == [best]
    assert block.lines[0].factor is None, "the default is always shown"
    assert len(block.lines) == (1 if best is None else 2)
    assert chosen[0].label == ("nids, default is best" if best is None else f"nids, {best:g} x default")


def test_where_nobody_gets_there_the_least_error_is_best():
    nobody = [(MISSED, MISSED)] * 4
    block = only_block(*grid_of(*nobody, errors=[0.5, 0.3, 0.2, None]))
    assert [line.factor for line in block.lines] == [None, 2.0]
    assert only_block(*grid_of(*nobody[:2], errors=[0.5, math.nan])).lines[0].label == "nids, default is best"


def test_without_a_grid_there_is_nothing_to_be_best_of():
    (line,) = only_block(outcome("nids", spent(1, 1), spent(2, 2))).lines
    assert (line.label, line.is_best) == ("nids", False)


# Tables


def test_the_least_of_every_column_is_marked_whoever_has_it():
    block = only_block(
        outcome("pds", spent(5, 90), spent(20, 400)),
        outcome("nids", spent(8, 12), spent(20, 300)),
        outcome("dgd", spent(5, 99), MISSED),
    )
    table = costs_table(block)
    assert headings(table) == [
        "method",
        "gradients to 0.1",
        "rounds to 0.1",
        "gradients to 0.01",
        "rounds to 0.01",
        "in the end",
    ]
    assert {name: row[:-1] for name, row in cells(table).items()} == {
        "pds": ["5*", "90", "20*", "400"],
        "nids": ["8", "12*", "20*", "300*"],
        "dgd": ["5*", "99", "-", "-"],
    }


def test_where_nobody_got_there_nobody_is_marked():
    block = only_block(outcome("pds", MISSED, MISSED), outcome("nids", MISSED, MISSED))
    assert [row[:-1] for row in cells(costs_table(block)).values()] == [["-"] * 4] * 2
    assert findings([block]) == []
    assert block.least(0, lambda found: found.work) == math.inf


def test_times_are_marked_by_clock():
    block = only_block(
        outcome("pds", spent(1, 1, wan=0.5, lan=0.002), spent(1, 1, wan=90.0, lan=7200.0)),
        outcome("nids", spent(1, 1, wan=0.7, lan=0.001), MISSED),
    )
    table = times_table(block)
    assert headings(table)[1:-1] == ["wan to 0.1", "wan to 0.01", "lan to 0.1", "lan to 0.01"]
    assert {name: row[:-1] for name, row in cells(table).items()} == {
        "pds": ["500 ms*", "1.5 min*", "2 ms", "2 h*"],
        "nids": ["700 ms", "-", "1 ms*", "-"],
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1e-4, "0.1 ms"),
        (0.25, "250 ms"),
        (1, "1 s"),
        (59.94, "59.9 s"),
        (90, "1.5 min"),
        (7200, "2 h"),
        (259200, "3 d"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_what_became_of_a_line_is_told_in_the_end():
    block = only_block(
        outcome("pds", MISSED, MISSED, error=2e-3, disagreement=5e-4),
        outcome("nids", MISSED, MISSED, error=2e-3, disagreement=5e-4, warnings=["its invariant is broken"]),
        outcome("dgd", MISSED, MISSED, status="DIVERGED"),
        outcome("opapc", kind="refused", message="needs mu > 0", error=None, disagreement=None),
        outcome("extra", kind="failed", message="ZeroDivisionError: x", error=None, disagreement=None),
    )
    assert {name: row[-1] for name, row in cells(costs_table(block)).items()} == {
        "pds": "2e-03 / 5e-04",
        "nids": "2e-03 / 5e-04 !",
        "dgd": "diverged",
        "opapc": "refused",
        "extra": "failed",
    }
    assert notes(block) == ["opapc: refused: needs mu > 0", "extra: failed: ZeroDivisionError: x"]


def test_one_seed_that_failed_is_not_hidden_by_the_others():
    runs = [outcome("dsgd", spent(1, 1), spent(2, 2), seed=seed) for seed in range(2)]
    block = only_block(*runs, outcome("dsgd", kind="failed", message="why", seed=2, error=None, disagreement=None))
    assert figures(block) == {"dsgd": [None, None]}
    assert notes(block) == ["dsgd: failed: why"]


CONDITIONS = several("condition", 'name = "fair"', 'name = "lossy"\nkinds = [{ kind = "lossy" }]')


def test_survival_is_told_by_method_and_condition_with_default_steps():
    found = compared(
        outcome("pds", MISSED, MISSED, condition="fair", error=1e-3, disagreement=2e-4),
        outcome("pds", MISSED, MISSED, condition="lossy", error=2e-3, disagreement=4e-4),
        outcome("nids", MISSED, MISSED, condition="fair", error=5e-1, disagreement=1e-1),
        outcome("nids", spent(1, 1), MISSED, condition="fair", factor=2.0, error=1e-9, disagreement=1e-9),
        outcome("nids", MISSED, MISSED, condition="lossy", status="DIVERGED"),
        outcome("dgd", MISSED, MISSED, condition="lossy", warnings=["broken"]),
        condition=CONDITIONS,
    )
    table = survival_table(blocks(found))
    assert headings(table) == ["method", "fair", "lossy"]
    assert cells(table) == {
        "pds": ["1e-03 / 2e-04", "2e-03 / 4e-04"],
        "nids": ["5e-01 / 1e-01", "diverged"],
        "dgd": ["-", "1e-03 / 1e-04 !"],
    }
    assert "error / disagreement in the end" in report(found)


def test_blocks_are_in_the_order_of_the_file_and_so_are_lines():
    runs = [
        outcome(name, MISSED, MISSED, condition=condition) for condition in ("lossy", "fair") for name in ("dgd", "pds")
    ]
    found = blocks(compared(*runs, condition=CONDITIONS, method=methods("pds", "extra", "dgd")))
    assert [block.condition for block in found] == ["fair", "lossy"]
    assert [[line.method for line in block.lines] for block in found] == [["pds", "dgd"]] * 2


def test_the_overview_names_ours_and_whoever_took_the_least_in_every_block():
    found = compared(
        outcome("pds", spent(5, 90), MISSED, condition="fair"),
        outcome("nids", spent(8, 12), MISSED, condition="fair"),
        outcome("nids", spent(7, 12), MISSED, condition="fair", factor=2.0),
        outcome("nids", MISSED, MISSED, condition="lossy"),
        condition=CONDITIONS,
    )
    table = overview_table(blocks(found), 0)
    assert headings(table) == ["problem", "network", "condition", "pds", "least gradients", "least rounds"]
    assert [row[2:] for row in table.cells] == [
        ["fair", "(5, 90)", "pds (5, 90)", "nids (8, 12)"],
        ["lossy", "-", "not reached", "not reached"],
    ]
    assert "(gradients, rounds) to 0.1" in report(found)


# Findings


@pytest.mark.parametrize(
    ("ours", "baseline", "said"),
    [
        (spent(10, 10), spent(9, 9), ["pds (10, 10) behind nids (9, 9)"]),
        (spent(10, 10), spent(9, 11), []),
        (spent(10, 10), spent(9, 10), []),
        (spent(10, 10), spent(10, 9), []),
        (spent(10, 10), spent(10, 10), []),
        (MISSED, spent(9000, 9000), ["pds (never) behind nids (9,000, 9,000)"]),
        (spent(10, 10), MISSED, []),
        (MISSED, MISSED, []),
    ],
)
def test_baselines_that_are_better_in_both_are_named(ours, baseline, said):
    found = compared(outcome("pds", ours, MISSED), outcome("nids", baseline, MISSED))
    assert findings(blocks(found)) == [f"squares; ring; reliable network; 0.1: {text}" for text in said]
    text = report(found)
    assert ("no baseline took less of both" in text) == (not said)
    assert [line for line in said if line not in text] == []


def test_every_better_baseline_is_named_at_its_default_and_at_its_best():
    block = only_block(
        outcome("spds", spent(10, 10), MISSED),
        outcome("nids", spent(9, 9), MISSED),
        outcome("nids", spent(5, 5), MISSED, factor=3.0),
        outcome("pds", spent(2, 2), MISSED),
        outcome("dgd", spent(1, 99), MISSED),
        method=several("method", 'name = "spds"\nN = 3', *(f'name = "{name}"' for name in ("nids", "pds", "dgd"))),
    )
    assert [line.is_ours for line in block.lines] == [True, False, False, True, False]
    assert findings([block]) == [
        "squares; ring; reliable network; 0.1: spds (10, 10) behind nids (9, 9), nids, 3 x default (5, 5)"
    ]


def test_ours_are_known_by_what_they_are_not_by_what_they_are_called():
    table = several("method", 'name = "pds"\nlabel = "mine"', 'name = "nids"\nlabel = "pds"')
    block = only_block(outcome("mine", spent(2, 2), MISSED), outcome("pds", spent(1, 1), MISSED), method=table)
    assert [(line.method, line.is_ours) for line in block.lines] == [("mine", True), ("pds", False)]


# The whole report


def test_the_report_has_everything_and_can_be_written_anywhere():
    found = compared(
        outcome("pds", spent(5, 90, wan=1.0), MISSED),
        outcome("nids", spent(8, 12, wan=2.0), MISSED),
        top='version = 1\naccuracies = [1e-1, 1e-2]\ntitle = "A [b] title [/b]"\ndisagreement_factor = 3.0',
        clock='name = "wan"',
        method=several("method", 'name = "pds"', 'name = "nids"'),
    )
    text = report(found)
    for words in (
        "A [b] title [/b]",
        "squares; ring; reliable network",
        "simulated time",
        "3 eps |x*|",
        "medians over seeds",
    ):
        assert words in text
    assert "interrupted" not in text
    text.encode("ascii")
    assert all(line == line.rstrip() for line in text.splitlines())


def test_nothing_is_cut_off_however_long_the_names_are():
    names = [f"{letter}{80 * letter}" for letter in "ab"]
    table = several("method", *(f'name = "nids"\nlabel = "{name}"' for name in names))
    runs = [
        outcome(name, spent(123, 4567), spent(89, 1011), condition=condition)
        for name in names
        for condition in ("fair", "lossy")
    ]
    text = report(compared(*runs, method=table, condition=CONDITIONS))
    text.encode("ascii")
    assert f"{names[0]} (123, 4,567)" in text
    assert all(text.count(name) >= 3 for name in names)


def test_an_interrupted_comparison_says_so_even_before_anything_is_done():
    empty = compared(interrupted=True, method=methods("pds"))
    assert "interrupted: the same command goes on from here" in report(empty)
    assert not empty.is_complete
    assert strict_json(to_json(empty))["blocks"] == []


def test_progress_is_a_bar_that_takes_any_name(capsys):
    with progress_of_runs(True) as show:
        assert capsys.readouterr().err == ""
        show(1, 2, "[/b] nids (squares, ring)")
    assert "1/2" in capsys.readouterr().err
    with progress_of_runs(False) as show:
        show(1, 2, "")
    assert capsys.readouterr() == ("", "")


# Files


def test_files_hold_numbers_that_every_reader_takes(tmp_path):
    found = compared(
        outcome(
            "pds", spent(5, 90, samples=3, floats=700, wan=1.5), MISSED, warnings=["first", "second, with a comma"]
        ),
        outcome("nids", spent(8, 12, wan=2.0), spent(9, 13, wan=2.5), error=math.inf, disagreement=None),
        outcome("nids", spent(8, 12, wan=2.0), spent(9, 13, wan=2.5), factor=2.0, status="CONVERGED", error=math.nan),
        outcome("opapc", kind="refused", message="needs mu > 0", error=None, disagreement=None),
        clock='name = "wan"',
        method=methods("pds", "nids", "opapc"),
        output=f"dir = '{tmp_path / 'out'}'\nplot = false",
    )
    written = write_files(found, "the text")
    assert [path.name for path in written] == ["report.txt", "comparison.json", "comparison.csv", "networks.json"]
    assert written[0].read_text() == "the text"
    said = strict_json(written[1].read_text())
    assert said["accuracies"] == [0.1, 0.01]
    assert [line["method"] for line in said["blocks"][0]["lines"]] == ["pds", "nids", "opapc"]
    assert [each["error"] for each in said["outcomes"]] == [1e-3, None, None, None]
    assert said["optima"] == {"squares": {"objective": 1.0, "size": 1.0}}
    assert [each["disagreement"] for each in said["outcomes"]] == [1e-4, None, 1e-4, None]
    frame = pd.read_csv(written[2])
    assert len(frame) == 4 * 2
    assert "disagreement" in frame.columns
    first = frame.iloc[0]
    assert (first.method, first.accuracy, first.gradients, first.samples, first.rounds) == ("pds", 0.1, 5, 3, 90)
    assert (first.floats_sent, first.seconds_wan, first.warnings) == (700, 1.5, "first; second, with a comma")
    assert frame.rounds.isna().tolist() == [False, True, False, False, False, False, True, True]
    assert frame.factor.isna().tolist() == [True, True, True, True, False, False, True, True]
    assert frame.kind.tolist() == ["done"] * 6 + ["refused"] * 2


def test_deprecated_keys_stand_beside_those_that_replace_them():
    found = compared(
        outcome("pds", MISSED, MISSED, disagreement=3e-4, curve={"error": [1.0], "disagreement": [0.5]}),
        top="version = 1\naccuracies = [1e-1, 1e-2]\ndisagreement_factor = 3.0",
    )
    said = strict_json(to_json(found))
    assert said["apart"] == said["disagreement_factor"] == 3.0
    assert said["rivals_better_in_both"] == said["baselines_better_in_both"] == []
    for table in (said["outcomes"][0], said["blocks"][0]["lines"][0]):
        assert table["apart"] == table["disagreement"] == 3e-4
    curve = said["outcomes"][0]["curve"]
    assert curve["apart"] == curve["disagreement"] == [0.5]
    current = with_new_names(said)
    assert "apart" not in json.dumps(current)
    assert with_old_names(current) == said


@pytest.mark.slow
def test_pictures_are_drawn_of_every_block_even_where_there_is_little_to_show(tmp_path):
    from matplotlib.image import imread

    curve = {
        "gradients": [0, 0],
        "rounds": [0, 5],
        "control_rounds": [2, 2],
        "error": [1.0, -1e-3],
        "disagreement": [0.0, 0.0],
    }
    found = compared(
        outcome("pds", spent(0, 0), MISSED, condition="fair", curve=curve),
        outcome("nids", MISSED, MISSED, condition="fair", curve={**curve, "gradients": [1, 2]}),
        outcome("opapc", kind="refused", condition="lossy", error=None, disagreement=None),
        condition=CONDITIONS,
        output=f"dir = '{tmp_path}'",
    )
    written = write_files(found, "")[4:]
    assert [path.name for path in written] == [
        f"squares-ring-{condition}.{kind}.png" for condition in ("fair", "lossy") for kind in ("frontier", "curves")
    ]
    for path in written:
        assert imread(path).ndim == 3


# The command


OWN_NAME = several("method", 'name = "pds"', 'name = "nids"\ngrid = [0.5]\nlabel = "NIDS [2019]"')


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """A comparison in a process of its own, whose output takes plain characters only."""
    folder = tmp_path_factory.mktemp("command")
    spec = write_comparison(folder, method=OWN_NAME, output='dir = "out"')
    arguments = [*MODULE, "compare", str(spec), "--processes", "1"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    return folder, subprocess.run(
        arguments, cwd=folder, capture_output=True, text=True, env=environment, timeout=300, check=False
    )


def test_the_table_is_printed_and_the_files_are_named(printed):
    folder, done = printed
    assert done.returncode == 0, done.stderr
    assert "NIDS [2019]" in done.stdout
    *named, page = [line.strip() for line in done.stdout.split("written:\n")[1].splitlines()]
    assert page == "as a page: gradslide report out"
    files = [path for path in (folder / "out").iterdir() if path.is_file()]
    assert sorted(named) == sorted(f"out{os.sep}{path.name}" for path in files)
    assert {path.suffix for path in files} == {".txt", ".json", ".csv", ".png"}
    assert (folder / "out" / "report.txt").read_text() == done.stdout.split("\nwritten:")[0]
    assert "3/3" in done.stderr, "progress goes to stderr"


def test_json_is_all_there_is_on_stdout(printed, capsys):
    folder, _ = printed
    spec = write_comparison(folder, "json.toml", method=OWN_NAME)
    assert exit_code("compare", spec, "--json", "-j", 1, "--out", folder / "out") == 0
    said = strict_json(capsys.readouterr().out)
    assert said == strict_json((folder / "out" / "comparison.json").read_text())
    assert {line["method"] for line in said["blocks"][0]["lines"]} == {"pds", "NIDS [2019]"}
    assert [(each["method"], each["factor"]) for each in said["outcomes"]] == [
        ("pds", None),
        ("NIDS [2019]", None),
        ("NIDS [2019]", 0.5),
    ]


def test_quiet_prints_nothing(printed, capsys):
    folder, _ = printed
    spec = write_comparison(folder, "q.toml", method=OWN_NAME)
    assert exit_code("compare", spec, "-q", "-j", 1, "-o", folder / "out") == 0
    assert capsys.readouterr() == ("", "")


def test_out_overrides_the_folder_of_the_spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    without_processes(monkeypatch)
    spec = write_comparison(tmp_path, limits="iterations = 2")
    assert exit_code("compare", spec, "-q", "--out", "elsewhere", "-j", 1) == 0
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {
        "report.txt",
        "comparison.json",
        "comparison.csv",
        "networks.json",
        "runs",
    }
    assert not (tmp_path / "gradslide-results").exists()

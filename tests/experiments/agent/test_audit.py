"""Audit logs: a chain of signed lines that shows every change."""

import json

import pytest
from specs import exit_code

import gradslide as gs
from gradslide.experiments.agent.audit import AuditLog, verified
from gradslide.network.peers.keys import make_key_pair


@pytest.fixture
def log(tmp_path):
    """A log of three events, and the keys of its agent."""
    own = make_key_pair("north", tmp_path)
    audit = AuditLog(tmp_path / "audit.jsonl", own)
    audit.add("started", run="one")
    audit.add("connected", agents=4, keys=["a", "b"])
    # Another process of the same agent goes on.
    AuditLog(tmp_path / "audit.jsonl", own).add("ended", status="CONVERGED", **{"bytes sent": 1234})
    return tmp_path / "audit.jsonl", own


def changed(path, edit):
    lines = path.read_text().splitlines()
    path.write_text("\n".join(edit(lines)) + "\n")


def test_events_are_read_as_they_were_written(log):
    path, own = log
    entries = verified(path, own.public)
    assert [each.event for each in entries] == ["started", "connected", "ended"]
    assert entries[1].facts == {"agents": 4, "keys": ["a", "b"]}
    assert [each.number for each in entries] == [1, 2, 3]
    assert entries[2].previous == entries[1].hash


@pytest.mark.parametrize("cut", [1, 2, 30, 200])
@pytest.mark.parametrize("whole", [0, 1, 2])
def test_a_line_that_a_full_disk_cut_off_does_not_keep_the_agent_from_starting(log, whole, cut):
    path, own = log
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:whole]) + lines[whole][:-cut])
    AuditLog(path, own).add("started", run="two")
    entries = verified(path, own.public)
    assert [each.event for each in entries] == [*["started", "connected", "ended"][:whole], "started"]


def of_another_key(lines, folder):
    """The whole log, signed anew by somebody else."""
    path = folder / "forged.jsonl"
    forger = AuditLog(path, make_key_pair("forger", folder))
    for line in lines:
        entry = json.loads(line)
        forger.add(entry["event"], **entry["facts"])
    return path.read_text().splitlines()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda lines: [lines[0], lines[1].replace('"agents": 4', '"agents": 5'), lines[2]],
            "line 2, which was changed",
        ),
        (lambda lines: [lines[0], lines[2]], "line 2, which does not follow the line before"),
        (lambda lines: lines[1:], "line 1, which does not follow the line before"),
        (lambda lines: [lines[1], lines[0], lines[2]], "line 1, which does not follow the line before"),
        (lambda lines: [*lines[:2], lines[2][:-20]], "line 3, which cannot be read"),
        (lambda lines: [*lines, lines[2]], "line 4, which does not follow the line before"),
        (lambda lines: [*lines, "{}"], "line 4, which cannot be read"),
        (
            lambda lines: [each.replace('"signature": "', '"signature": "A') for each in lines],
            "line 1, which is not signed",
        ),
    ],
)
def test_changes_are_found(log, edit, message):
    path, own = log
    changed(path, edit)
    with pytest.raises(gs.InputError, match=message):
        verified(path)
    with pytest.raises(gs.InputError, match="an unbroken chain of signed lines"):
        AuditLog(path, own)


def test_a_log_that_somebody_else_wrote_is_found_with_the_key(log, tmp_path):
    path, own = log
    changed(path, lambda lines: of_another_key(lines, tmp_path))
    assert len(verified(path)) == 3
    with pytest.raises(gs.InputError, match="line 1, which is of another key"):
        verified(path, own.public)


def test_the_command(log, tmp_path, capsys):
    path, own = log
    assert exit_code("audit", "verify", path, "--key", tmp_path / "north.public") == 0
    said = capsys.readouterr().out
    assert "bytes sent 1234" in said
    assert f"unbroken: 3 lines, signed by {own.public}" in said
    assert exit_code("audit", "verify", path, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["event"] for each in told["entries"]] == ["started", "connected", "ended"]
    assert told["hash"] == verified(path)[-1].hash
    changed(path, lambda lines: lines[1:])
    assert exit_code("audit", "verify", path) == 1
    assert capsys.readouterr().err.startswith(
        "error: an audit log must be an unbroken chain of signed lines; got line 1"
    )
    assert exit_code("audit", "verify", tmp_path / "none.jsonl") == 1
    assert "No such file" in capsys.readouterr().err


def test_a_new_key_begins_a_new_log_that_holds_the_end_of_the_old_one(log, tmp_path):
    path, own = log
    end = verified(path)[-1].hash
    other = make_key_pair("north", tmp_path, replace=True)
    AuditLog(path, other).add("started", run="two")
    first, second = verified(path, other.public)
    assert (first.event, first.facts) == ("key changed", {"log": "audit.1.jsonl", "key": own.public, "hash": end})
    assert second.event == "started"
    assert verified(tmp_path / "audit.1.jsonl", own.public)[-1].hash == end
    AuditLog(path, own)
    assert (tmp_path / "audit.2.jsonl").exists()

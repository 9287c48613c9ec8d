"""Files: written whole or not at all, versioned, and read without pickle."""

import dataclasses
import io
import json
import os
import sys
import zipfile
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradslide as gs
from gradslide._support import storage

Pair = namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass(frozen=True)
class Inner:
    rate: float
    points: np.ndarray


@dataclasses.dataclass(frozen=True)
class Outer:
    step: int
    inner: Inner
    pair: Pair
    history: tuple
    named: dict
    label: str | None
    done: bool = False
    derived: int = dataclasses.field(init=False, default=7)


def write(path, version=1, kind="thing", meta=None, **arrays):
    return storage.write(path, kind, version, meta or {}, arrays)


def same(a, b):
    """Equal in structure, types and bits."""
    if type(a) is not type(b):
        return False
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


def through_a_file(value, path, template=None):
    arrays = {}
    meta = {"value": storage.flatten(value, "value", arrays)}
    storage.write(path, "thing", 1, meta, arrays)
    meta, arrays = storage.read(path, "thing", 1)
    return storage.restore(value if template is None else template, meta["value"], arrays)


# Atomic


def test_a_file_is_written_with_its_folders(tmp_path):
    path = storage.write_atomically(tmp_path / "a" / "b" / "file.bin", b"content")
    assert path.read_bytes() == b"content"
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
    storage.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("broken", ["fsync", "replace", "fdopen"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["disk full", "Ctrl-C"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, broken, error):
    path = storage.write_atomically(tmp_path / "file.bin", b"old")
    if broken == "fdopen":
        open_file = os.fdopen

        def half(handle, *arguments):
            file = open_file(handle, *arguments)
            file.write(b"ne")
            file.close()
            raise error

        monkeypatch.setattr(os, "fdopen", half)
    else:

        def fail(*arguments):
            raise error

        monkeypatch.setattr(os, broken, fail)
    with pytest.raises(type(error)):
        storage.write_atomically(path, b"new and longer")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]


@pytest.mark.parametrize(
    "what", [{"meta": {"f": print}}, {"x": np.array([print], dtype=object)}], ids=["meta", "array"]
)
def test_what_cannot_be_stored_leaves_the_old_file(tmp_path, what):
    path = write(tmp_path / "file.npz", x=np.arange(3))
    before = path.read_bytes()
    with pytest.raises((TypeError, ValueError)):
        write(path, **what)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no file modes there")
def test_files_get_the_mode_that_the_user_wants(tmp_path):
    before = os.umask(0o027)
    try:
        mode = storage.write_atomically(tmp_path / "file.bin", b"").stat().st_mode
    finally:
        os.umask(before)
    assert mode & 0o777 == 0o640


# Refusals


def test_kind_and_version_are_checked(tmp_path):
    path = write(tmp_path / "file.npz", version=2)
    assert storage.read(path, "thing", 2)[0]["version"] == 2
    for kind, version, word in [("thing", 1, "version 2"), ("thing", 3, "version 2"), ("other", 2, "a thing file")]:
        with pytest.raises(gs.InputError, match=f"; got {word}; "):
            storage.read(path, kind, version)


def test_a_solution_of_another_version_is_refused(tmp_path, monkeypatch):
    problem = gs.Problem(gs.losses.Quadratic(np.ones((3, 1, 1)), np.ones((3, 1))))
    solution = gs.solve(problem, gs.Graph.ring(3), gs.PDS(L=1.0, R=1.0), stop=gs.Stop(iterations=2))
    monkeypatch.setattr("gradslide.results.solution._VERSION", 99)
    path = solution.save(tmp_path / "solution.npz")
    monkeypatch.undo()
    with pytest.raises(gs.InputError, match="version 99"):
        gs.load(path)


def not_ours(folder, kind):
    path = folder / "file.npz"
    whole = write(path, x=np.arange(1000.0)).read_bytes()
    match kind:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("not a file of ours")
        case "cut short":
            path.write_bytes(whole[: len(whole) // 2])
        case "damaged":
            path.write_bytes(whole[:300] + b"\xff" * 200 + whole[500:])
        case "npy":
            with path.open("wb") as file:
                np.save(file, np.arange(3))
        case "npz of others":
            np.savez(path, x=np.arange(3))
        case "zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("hello.txt", "hello")
        case "header is a list":
            np.savez(path, **{"meta.json": np.frombuffer(b"[1]", dtype=np.uint8)})
        case "header is no text":
            np.savez(path, **{"meta.json": np.array([255, 254], dtype=np.uint8)})
        case "folder":
            path.unlink()
            path.mkdir()
    return path


@pytest.mark.parametrize(
    "kind",
    [
        "missing",
        "empty",
        "text",
        "cut short",
        "damaged",
        "npy",
        "npz of others",
        "zip",
        "header is a list",
        "header is no text",
        "folder",
    ],
)
def test_what_we_did_not_write_is_refused(tmp_path, kind):
    path = not_ours(tmp_path, kind)
    with pytest.raises(gs.InputError, match=r"must be a gradslide thing file; got .+; .+"):
        storage.read(path, "thing", 1)


def test_pickled_objects_are_never_loaded(tmp_path):
    header = json.dumps({"kind": "thing", "version": 1}).encode()
    buffer = io.BytesIO()
    objects = np.array([slice(1)], dtype=object)
    np.savez(buffer, allow_pickle=True, **{"meta.json": np.frombuffer(header, dtype=np.uint8)}, x=objects)
    path = tmp_path / "trap.npz"
    path.write_bytes(buffer.getvalue())
    with pytest.raises(gs.InputError):
        storage.read(path, "thing", 1)


# Round trips


def outer(points):
    return Outer(
        step=3,
        inner=Inner(0.1, points),
        pair=Pair(points[:1], 2.5),
        history=(1, [points, None], "text"),
        named={"a": points, "b": {"c": (1, 2)}},
        label=None,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, bool])
def test_a_nest_comes_back_as_it_was(tmp_path, dtype):
    value = outer((np.arange(6).reshape(3, 2) % 3).astype(dtype))
    template = outer(np.zeros((3, 2), dtype))
    assert same(through_a_file(value, tmp_path / "x.npz", template), value)
    assert not same(template, value)


def test_special_numbers_come_back_to_the_bit(tmp_path):
    value = Inner(0.1 + 0.2, np.array([np.nan, np.inf, -0.0, 5e-324, np.pi]))
    back = through_a_file(value, tmp_path / "x.npz")
    assert back.points.tobytes() == value.points.tobytes()
    assert back.rate.hex() == value.rate.hex()


@pytest.mark.parametrize("value", [{"array": np.arange(3)}, {"array": "value"}, {1: np.arange(2), 2: np.arange(3)}])
def test_dicts_with_awkward_keys_come_back(tmp_path, value):
    assert same(through_a_file(value, tmp_path / "x.npz"), value)


@pytest.mark.parametrize("length", [0, 3])
def test_lists_may_have_grown_since_the_template(tmp_path, length):
    """A state that keeps the last points starts with none."""
    value = {"points": [np.full(2, float(i)) for i in range(length)]}
    assert same(through_a_file(value, tmp_path / "x.npz", {"points": []}), value)


def test_what_was_none_may_have_become_an_array(tmp_path):
    value = Inner(1.0, np.arange(3.0))
    assert same(through_a_file(value, tmp_path / "x.npz", Inner(0.0, None)), value)


leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5)
arrays = st.lists(st.floats(allow_nan=False), max_size=4).map(np.array)
names = st.text("abcxyz.", min_size=1, max_size=4)
nests = st.recursive(
    leaves | arrays,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(nests)
def test_any_nest_comes_back(value):
    arrays = {}
    saved = json.loads(json.dumps(storage.flatten(value, "value", arrays)))
    assert same(storage.restore(value, saved, arrays), value)

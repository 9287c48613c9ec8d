"""Data: reader, data directory, download and its checks, splits, the built-in set."""

import bz2
import gzip
import hashlib
import lzma
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import DATA
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.linear_model import LogisticRegression

from gradslide import data
from gradslide._support.errors import InputError
from gradslide.data import libsvm, svmlight
from gradslide.data.libsvm import KNOWN, LibsvmSet

TEXT = b"1 1:0.5 3:-2\n-1 2:1e-3\n+1\n"
DENSE = [[0.5, 0, -2], [0, 1e-3, 0], [0, 0, 0]]


def parse(text, features=None):
    matrix, labels = svmlight.parse(text, "made.svm", features)
    return matrix.toarray().tolist(), labels.tolist()


# Reader


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.rstrip(),
        TEXT.replace(b"\n", b"\r\n"),
        TEXT.replace(b" ", b" \t "),
        b"# made by hand\n\n" + TEXT.replace(b"\n", b"  # note 7:7\n\n"),
    ],
    ids=["plain", "no last newline", "windows", "wide", "comments and blanks"],
)
def test_reader_takes_every_layout(text):
    assert parse(text) == (DENSE, [1, -1, 1])


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# nothing"])
def test_reader_of_nothing(text):
    matrix, labels = svmlight.parse(text, "made.svm")
    assert matrix.shape == (0, 0)
    assert labels.shape == (0,)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"1 1:2 3", "numbers"),
        (b"1 1:2:3 4", "numbers"),
        (b"1 2 3:4:5", "numbers"),
        (b"1 1: 2", "numbers"),
        (b"1 :2", "numbers"),
        (b"1 1:x", "numbers"),
        (b"one 1:2", "numbers"),
        (b"1:2 3:4", "numbers"),
        (b"1 1:nan", "numbers"),
        (b"1 1:1_0", "numbers"),
        (b"inf 1:1", "numbers"),
        (b"1 qid:3 1:2", "numbers"),
        (b"1 -1:2", "numbers"),
        (b"1 1.5:2", "numbers"),
        (b"1 0:2", "indices from 1"),
        (b"1 2:2 1:1", "ascending"),
        (b"1 2:2 2:1", "ascending"),
        (b"1 99999999999:1", "ascending"),
        (b"\xff\xfe", "numbers"),
    ],
)
def test_reader_names_the_malformed_line(line, fault, monkeypatch):
    for chunk in (1 << 23, 1):
        monkeypatch.setattr(svmlight, "_CHUNK", chunk)
        with pytest.raises(InputError, match=f"line 4 of made.svm .* with {fault}"):
            svmlight.parse(b"# a comment\n1 1:1\n\n" + line + b"\n1 1:1\n", "made.svm")


def test_reader_with_a_number_of_features():
    assert parse(TEXT, 4) == ([[*row, 0] for row in DENSE], [1, -1, 1])
    with pytest.raises(InputError, match="at most 2 features; got index 3"):
        parse(TEXT, 2)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    st.integers(1, 30), st.integers(1, 12), st.floats(0, 1), st.integers(0, 10**6), st.sampled_from([1, 40, 1 << 23])
)
def test_reader_equals_sklearn_on_random_files(rows, columns, density, seed, chunk):
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-20, 20) * (rng.random((rows, columns)) < density)
    file = BytesIO()
    dump_svmlight_file(dense, rng.integers(-3, 4, rows), file, zero_based=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svmlight, "_CHUNK", chunk)
        ours, labels = svmlight.parse(file.getvalue(), "made.svm", columns)
    theirs, expected = load_svmlight_file(BytesIO(file.getvalue()), n_features=columns, zero_based=False)
    assert (ours != theirs).nnz == 0
    np.testing.assert_array_equal(labels, expected)


def naive_parse(text):
    rows, labels = [], []
    for line in text.split(b"\n"):
        if fields := line.partition(b"#")[0].split():
            labels.append(float(fields[0]))
            entries = [tuple(map(float, field.split(b":"))) for field in fields[1:]]
            indices = [index for index, _ in entries]
            if indices != sorted(set(indices)) or not all(i >= 1 and i.is_integer() for i in indices):
                raise ValueError(line)
            rows.append(entries)
    return rows, labels


@settings(deadline=None, derandomize=True, max_examples=400)
@given(st.lists(st.sampled_from([b"1", b"2", b"-3", b".5", b":", b"1:2", b"2:1", b" ", b" ", b"\n", b"#", b"\f"])))
def test_reader_takes_and_refuses_the_same_as_a_naive_one(pieces):
    text = b"".join(pieces)
    try:
        rows, expected = naive_parse(text)
    except ValueError:
        with pytest.raises(InputError, match="line"):
            svmlight.parse(text, "made.svm")
        return
    matrix, labels = svmlight.parse(text, "made.svm", 400_000_000)
    assert labels.tolist() == expected
    assert matrix.data.tolist() == [value for row in rows for _, value in row]
    assert matrix.indices.tolist() == [index - 1 for row in rows for index, _ in row]
    assert np.diff(matrix.indptr).tolist() == [len(row) for row in rows]


@pytest.mark.parametrize(
    ("ending", "compress"), [("", bytes), (".bz2", bz2.compress), (".xz", lzma.compress), (".gz", gzip.compress)]
)
def test_reader_decompresses(tmp_path, ending, compress):
    path = tmp_path / f"made.svm{ending}"
    path.write_bytes(compress(TEXT))
    matrix, labels = data.read_svmlight(path)
    assert matrix.toarray().tolist() == DENSE
    assert (matrix.dtype, labels.dtype) == (np.float64, np.float64)
    if ending:
        for damaged in (compress(TEXT)[:-9], b"not compressed"):
            path.write_bytes(damaged)
            with pytest.raises(InputError, match="whole"):
                data.read_svmlight(path)


@pytest.mark.parametrize(
    ("name", "labels"),
    [("ijcnn1", {-1: 45137, 1: 4853}), ("a9a", {-1: 24720, 1: 7841}), ("mushrooms", {-1: 3916, 1: 4208})],
)
def test_real_files(name, labels):
    path = data.find(name, DATA)
    if path is None:
        pytest.skip(f"{name} is not in the data directory")
    loaded = data.load(name, DATA)
    with lzma.open(path) as file:
        theirs, raw = load_svmlight_file(file, zero_based=False)
    assert loaded.features.shape == theirs.shape
    assert (loaded.features != theirs).nnz == 0
    np.testing.assert_array_equal(loaded.labels, np.where(raw == raw.max(), 1.0, -1.0))
    assert {int(k): int(c) for k, c in zip(*np.unique(loaded.labels, return_counts=True), strict=True)} == labels
    assert loaded.source == str(path)


# Data directory


def test_data_directory_precedence(monkeypatch, tmp_path):
    monkeypatch.delenv("GRADSLIDE_DATA", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert data.data_directory() == tmp_path / "xdg" / "gradslide"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert data.data_directory() == tmp_path / ".cache" / "gradslide"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert data.data_directory() == tmp_path / "Library" / "Caches" / "gradslide"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert data.data_directory() == tmp_path / "local" / "gradslide"
    monkeypatch.setenv("GRADSLIDE_DATA", str(tmp_path / "env"))
    assert data.data_directory() == tmp_path / "env"
    assert data.data_directory(tmp_path / "given") == tmp_path / "given"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a9a", "a9a"),
        ("a9a", "a9a.svm"),
        ("a9a", "a9a.txt.gz"),
        ("ijcnn1", "ijcnn1.bz2"),
        ("ijcnn1", "ijcnn1.svm.xz"),
        ("covtype.binary", "covtype.binary"),
        ("covtype.binary", "covtype.libsvm.binary.bz2"),
        ("covtype.binary", "covtype.libsvm.binary"),
    ],
)
def test_find_and_catalogue(tmp_path, name, file):
    assert data.find(name, tmp_path) is None
    (tmp_path / file).touch()
    assert data.find(name, tmp_path) == tmp_path / file
    assert data.get(name, tmp_path, base_url="http://unused.invalid") == tmp_path / file
    listed = {entry.name: entry for entry in data.catalogue(tmp_path)}
    assert list(listed) == ["ijcnn1", "a9a", "mushrooms", "w8a", "phishing", "covtype.binary"]
    assert [entry.name for entry in listed.values() if entry.path] == [name]
    assert (listed["w8a"].rows, listed["w8a"].features) == (49_749, 300)


def test_unknown_names():
    with pytest.raises(InputError, match="did you mean 'ijcnn1'"):
        data.load("ijcnn")


# Download


@pytest.fixture
def tiny(monkeypatch):
    """Two small sets: one with a hash, compressed; one whose shape alone is known."""
    monkeypatch.setenv("no_proxy", "*")
    digest = hashlib.sha256(TEXT).hexdigest()
    monkeypatch.setitem(KNOWN, "hashed", LibsvmSet("hashed", "hashed.bz2", 3, 3, digest))
    monkeypatch.setitem(KNOWN, "shaped", LibsvmSet("shaped", "shaped", 3, 3))


@pytest.fixture
def server(tiny):
    """A real web server on the loopback; `files` maps paths to (status, promised length or None, body)."""
    files = {"/hashed.bz2": (200, None, bz2.compress(TEXT)), "/shaped": (200, None, TEXT)}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, length, body = files.get(self.path, (404, None, b"no such file"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/", files
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["hashed", "shaped"])
def test_download_once_then_from_the_cache(server, tmp_path, name):
    url, files = server
    folder = tmp_path / "deep" / "cache"
    seen = []
    loaded = data.load(name, folder, base_url=url, progress=lambda received, total: seen.append((received, total)))
    assert loaded.features.toarray().tolist() == DENSE
    assert loaded.labels.tolist() == [1, -1, 1]
    assert [path.name for path in folder.iterdir()] == [KNOWN[name].file]
    size = (folder / KNOWN[name].file).stat().st_size
    assert seen[0] == (0, size)
    assert seen[-1] == (size, size)
    files.clear()
    assert data.load(name, folder, base_url=url).labels.tolist() == [1, -1, 1]


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("hashed", (200, None, bz2.compress(TEXT + b"1 1:1\n")), "must hold hashed with SHA-256 .*; got [0-9a-f]{64};"),
        ("hashed", (200, None, b"<html>moved</html>"), "whole .bz2 file"),
        ("hashed", (200, None, bz2.compress(TEXT)[:-5]), "whole .bz2 file"),
        ("shaped", (200, None, TEXT + b"1 1:1\n"), r"rows x features \(3, 3\); got \(4, 3\)"),
        ("shaped", (200, None, b"<html>moved</html>"), "line 1 of"),
        ("shaped", (200, 1000, TEXT), f"closed after {len(TEXT)} of 1000 bytes"),
        ("shaped", (404, None, b"gone"), "404"),
        ("shaped", (500, None, b"broken"), "500"),
    ],
)
def test_a_bad_download_leaves_nothing(server, tmp_path, name, answer, words):
    url, files = server
    files[f"/{KNOWN[name].file}"] = answer
    with pytest.raises(data.DataError, match=words):
        data.load(name, tmp_path, base_url=url)
    assert list(tmp_path.iterdir()) == []


def test_offline_tells_which_file_goes_where(tiny, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(data.DataError, match=r"put hashed.bz2 into .*--data-dir or GRADSLIDE_DATA") as caught:
        data.get("hashed", tmp_path, base_url=url)
    assert str(tmp_path) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_falls_silent(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(libsvm, "_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(data.DataError, match="timed out"):
        data.get("hashed", tmp_path, base_url=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_download_leaves_nothing(server, tmp_path):
    def interrupt(received, total):
        if received:
            assert len(list(tmp_path.iterdir())) == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data.get("shaped", tmp_path, base_url=server[0], progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(data.DataError, match="must be in the data directory"):
        data.get("shaped", tmp_path / "file" / "below", base_url=server[0])


def test_the_progress_bar_goes_to_stderr(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    data.get("shaped", tmp_path, base_url=server[0])
    printed = capsys.readouterr()
    assert "downloading shaped" in printed.err
    assert printed.out == ""


def test_a_damaged_file_in_the_cache_is_reported_not_deleted(tiny, tmp_path):
    path = tmp_path / "hashed"
    path.write_bytes(TEXT.replace(b"0.5", b"0.6"))
    with pytest.raises(data.DataError, match=f"{path} must hold hashed with SHA-256 {KNOWN['hashed'].sha256}"):
        data.load("hashed", tmp_path)
    assert path.exists()


def test_labels_become_signs(tiny, tmp_path):
    (tmp_path / "shaped").write_bytes(b"2 1:1\n1 2:1\n2 3:1\n")
    assert data.load("shaped", tmp_path).labels.tolist() == [1, -1, 1]
    (tmp_path / "shaped").write_bytes(b"2 1:1\n1 2:1\n3 3:1\n")
    with pytest.raises(data.DataError, match="two labels"):
        data.load("shaped", tmp_path)


# Splits


@settings(deadline=None, derandomize=True, max_examples=120)
@given(
    st.sampled_from(["contiguous", "shuffled", "dirichlet", "sorted"]),
    st.lists(st.sampled_from([-1.0, 1.0, 2.0]), min_size=1, max_size=60),
    st.data(),
)
def test_splits_hold_each_row_once_and_leave_no_agent_out(kind, labels, draw):
    m = draw.draw(st.integers(1, len(labels)))
    alpha = draw.draw(st.sampled_from([1e-3, 0.3, 100.0]))
    seed = draw.draw(st.integers(0, 100))
    shares = data.split(kind, np.array(labels), m, seed=seed, alpha=alpha)
    assert len(shares) == m
    assert min(map(len, shares)) >= 1
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(labels)))
    again = data.split(kind, np.array(labels), m, seed=seed, alpha=alpha)
    assert all(np.array_equal(a, b) for a, b in zip(shares, again, strict=True))
    if kind != "dirichlet":
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_splits_do_what_they_say():
    labels = np.tile([1.0, -1.0], 500)
    blocks = data.split_contiguous(1000, 3)
    assert [block[0] for block in blocks] == [0, 334, 667]
    assert (np.diff(blocks[1]) == 1).all()
    assert not np.array_equal(data.split_shuffled(1000, 3, 0)[0], data.split_shuffled(1000, 3, 1)[0])
    by_label = data.split("sorted", labels, 4)
    assert [set(labels[rows]) for rows in by_label] == [{-1.0}, {-1.0}, {1.0}, {1.0}]

    def spread(alpha):
        return np.std([(labels[rows] > 0).mean() for rows in data.split_by_label(labels, 10, alpha, seed=0)])

    assert spread(0.1) > 0.3
    assert spread(1000.0) < 0.1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: data.split_contiguous(3, 4), "4 agents and 3 rows"),
        (lambda: data.split_contiguous(3, 0), "0 agents"),
        (lambda: data.split_by_label([1, -1], 3, 1.0, 0), "3 agents and 2 rows"),
        (lambda: data.split_by_label([1, -1], 2, 0.0, 0), "alpha must be positive"),
        (lambda: data.split("shufled", [1, -1], 2), "did you mean 'shuffled'"),
    ],
)
def test_split_refusals(make, words):
    with pytest.raises(InputError, match=words):
        make()


# The built-in set


@pytest.mark.parametrize("seed", [0, 1])
def test_misfire_is_what_it_says(seed):
    engine = data.misfire(seed=seed)
    x, y = engine.features, engine.labels
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((20_000, 22), np.float64, (20_000,), np.float64)
    assert set(y) == {-1.0, 1.0}
    assert 0.09 < (y > 0).mean() < 0.11
    assert np.abs(x).max() < 1.2
    np.testing.assert_array_equal(x[:, :10].argmax(axis=1), (np.arange(20_000) + 9) % 10)
    np.testing.assert_array_equal(x[:, :10].sum(axis=1), 1.0)
    np.testing.assert_array_equal(x[1:, 12:21], x[:-1, 13:])  # the window slides
    assert np.abs(np.diff(x[:, 10:12], axis=0)).max() < 0.05

    fit = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=2000).fit(x, y)
    margin = y * (x @ fit.coef_[0])
    assert 0.15 < np.logaddexp(0, -margin).mean() < 0.25
    assert np.linalg.norm(fit.coef_) < 40
    gradient = x.T @ (-y / (1 + np.exp(margin))) / len(y)
    assert np.abs(gradient).max() < 1e-6  # a minimiser exists

    blocks = (y > 0).reshape(100, 200).mean(axis=1)
    assert blocks.std() > 2 * np.sqrt(0.1 * 0.9 / 200)  # more than chance would give: the agents differ


def test_misfire_is_reproducible():
    small = data.misfire(500)
    np.testing.assert_array_equal(small.features, data.misfire(500).features)
    assert not np.array_equal(small.features, data.misfire(500, seed=1).features)
    digest = hashlib.sha256(small.features.astype("<f8").tobytes() + small.labels.astype("<f8").tobytes()).hexdigest()
    assert digest.startswith("84312b3173051d48")
    with pytest.raises(InputError, match="at least 100"):
        data.misfire(5)

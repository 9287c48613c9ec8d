"""Keys: made once, secret from the first byte on, and checked when they are read."""

import os
import pickle
import stat

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gradslide._support.errors import InputError
from gradslide.network.peers import keys
from gradslide.network.peers.keys import KeyPair, make_key_pair, read_public, read_secret


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_pair_is_written_and_read_back(tmp_path):
    pair = make_key_pair("hospital-a", tmp_path / "new" / "folder")
    secret, public = (tmp_path / "new" / "folder" / f"hospital-a.{kind}" for kind in ("secret", "public"))
    assert read_secret(secret) == pair
    assert read_public(public) == read_public(str(public)) == read_public(pair.public) == pair.public
    assert pair.public.startswith("ed25519:")
    assert pair.secret.startswith("ed25519-secret:")
    key = Ed25519PrivateKey.from_private_bytes(keys.raw(pair.secret))
    key.public_key().verify(key.sign(b"text"), b"text")
    assert keys.public_text(key.public_key().public_bytes_raw()) == pair.public
    assert make_key_pair("hospital-b", tmp_path).secret != pair.secret


def test_the_secret_is_never_open_to_others(tmp_path, monkeypatch, open_umask):
    modes = []

    def fdopen(handle, *args, **kwargs):
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return original(handle, *args, **kwargs)

    original = os.fdopen
    monkeypatch.setattr(keys.os, "fdopen", fdopen)
    make_key_pair("a", tmp_path)
    assert modes[0] == 0o600, "before the first byte"
    assert mode(tmp_path / "a.secret") == 0o600
    assert mode(tmp_path / "a.public") == 0o644


@pytest.mark.parametrize("kind", ["secret", "public"])
def test_nothing_is_overwritten(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    path.write_text("mine")
    with pytest.raises(InputError, match=r"never overwritten; got .* which exists"):
        make_key_pair("a", tmp_path)
    assert path.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("fails_at", [0, 1])
def test_a_pair_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch, fails_at):
    calls = []

    def fail(*unused):
        calls.append(1)
        if len(calls) > fails_at:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(keys.os, "fsync", fail)
    with pytest.raises(InputError, match="No space left"):
        make_key_pair("a", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden", "-a", "a b", "a\n", "ä"])
def test_names_are_plain(tmp_path, name):
    with pytest.raises(InputError, match="plain file name"):
        make_key_pair(name, tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="modes are of posix")
@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o601, 0o666])
def test_a_secret_that_others_could_read_is_refused(tmp_path, bits):
    pair = make_key_pair("a", tmp_path)
    path = tmp_path / "a.secret"
    path.chmod(bits)
    with pytest.raises(InputError, match=f"mode {bits:04o}; run chmod 600") as error:
        read_secret(path)
    assert pair.secret not in str(error.value)
    path.chmod(0o400)
    assert read_secret(path) == pair


GOOD = "ed25519:" + "A" * 43
BAD = ["", "short", GOOD[:-1], GOOD + "A", GOOD[:-1] + "B", GOOD.replace(":", ";"), "ä" * 51, "\x00" * 51]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_key_is_refused(tmp_path, text):
    path = tmp_path / "a.secret"
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="must hold a secret key"):
        read_secret(path)
    for source in (path, text):
        with pytest.raises(InputError, match="43 characters"):
            read_public(source)
    assert read_public(GOOD) == GOOD


def test_secret_and_public_keys_are_not_mixed_up(tmp_path):
    pair = make_key_pair("a", tmp_path)
    for source in (pair.secret, tmp_path / "a.secret"):
        with pytest.raises(InputError, match="got a secret key") as error:
            read_public(source)
        assert pair.secret not in str(error.value)
    path = tmp_path / "b.secret"
    path.touch(0o600)
    path.write_text(pair.public)
    with pytest.raises(InputError, match="must hold a secret key"):
        read_secret(path)


FORMER = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


def test_keys_of_former_releases_are_recognized(tmp_path):
    path = tmp_path / "a.secret"
    path.touch(0o600)
    path.write_text(FORMER + "\n")
    for read in (lambda: read_secret(path), lambda: read_public(path), lambda: read_public(FORMER)):
        with pytest.raises(InputError, match=r"a key of a former release; .*gradslide keys new NAME --replace"):
            read()


def test_replaced_keys_are_kept(tmp_path):
    first, second, third = (make_key_pair("a", tmp_path, replace=True) for _ in range(3))
    assert read_secret(tmp_path / "a.secret") == third
    assert [read_public(tmp_path / f"a.public.{i}") for i in (1, 2)] == [first.public, second.public]
    assert read_secret(tmp_path / "a.secret.2") == second
    assert mode(tmp_path / "a.secret.1") == 0o600


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="gradslide keys new"):
        read_secret(tmp_path / "none.secret")
    with pytest.raises(InputError, match=r"NAME\.public"):
        read_public(tmp_path / "none.public")


def test_a_pair_does_not_show_its_secret(tmp_path):
    pair = make_key_pair("a", tmp_path)
    assert pair.secret not in repr(pair)
    assert pair.public in repr(pair)
    assert pickle.loads(pickle.dumps(pair)) == pair
    assert isinstance(pair, KeyPair)

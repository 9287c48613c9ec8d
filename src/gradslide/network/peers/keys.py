"""Key pairs of agents: CURVE keys in Z85, one line per file."""

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from zmq.utils import z85

from gradslide._support.errors import InputError, require

_LENGTH = 40
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class KeyPair:
    """An agent's identity.

    Attributes
    ----------
    public : str
        Given to neighbours.
    secret : str
        Never leaves the machine.
    """

    public: str
    secret: str = field(repr=False)


def make_key_pair(name: str, folder: str | os.PathLike[str] = ".") -> KeyPair:
    """Make a key pair, and write NAME.secret (mode 0600) and NAME.public into a folder.

    Nothing is overwritten.
    """
    require(bool(_NAME.fullmatch(name)), "a key's name must be a plain file name", repr(name), "for example hospital-a")
    paths = {kind: Path(folder) / f"{name}.{kind}" for kind in ("secret", "public")}
    for path in paths.values():
        if os.path.lexists(path):
            raise _exists(path)
    public, secret = (key.decode("ascii") for key in zmq.curve_keypair())
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _write_new(paths["secret"], secret, 0o600)
        try:
            _write_new(paths["public"], public, 0o644)
        except BaseException:
            paths["secret"].unlink()
            raise
    except OSError as error:
        got = f"{folder} ({error.strerror})"
        raise InputError("keys need a folder that can be written to", got, "choose another") from None
    return KeyPair(public, secret)


def read_secret(path: str | os.PathLike[str]) -> KeyPair:
    """Read the key pair of a secret file, which only its owner may be able to open.

    Raises
    ------
    InputError
        If there is no key in the file, or others can read it.
    """
    rule = f"{path} must hold a secret key of {_LENGTH} characters"
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(_LENGTH + 16)
    except OSError as error:
        raise InputError(rule, error.strerror, "make one with: gradslide keys new NAME") from None
    if os.name == "posix" and mode & 0o077:
        secrecy = f"{path} must be for its owner alone"
        raise InputError(secrecy, f"mode {mode:04o}", f"run chmod 600 {path}, or make a new key if others had access")
    secret = _key(content.decode("ascii", "replace").strip())
    if secret is None:
        raise InputError(rule, "something else", "make one with: gradslide keys new NAME")
    return KeyPair(zmq.curve_public(secret.encode()).decode("ascii"), secret)


def read_public(source: str | os.PathLike[str]) -> str:
    """Read a public key, given as its text, or as the path of a file that holds it."""
    text = _key(source.strip()) if isinstance(source, str) else None
    if text is not None:
        return text
    rule = f"a public key must be {_LENGTH} characters of Z85, or a file that holds them"
    try:
        with open(source, "rb") as file:
            content = file.read(_LENGTH + 16)
    except (OSError, ValueError):
        raise InputError(rule, repr(os.fspath(source)), "copy it from the neighbour's NAME.public") from None
    text = _key(content.decode("ascii", "replace").strip())
    if text is None:
        raise InputError(rule, f"another content in {source}", "copy it from the neighbour's NAME.public")
    return text


def raw(key: str) -> bytes:
    """The 32 bytes of a key."""
    return z85.decode(key.encode("ascii"))


def _key(text: str) -> str | None:
    """The text if it is a key."""
    try:
        valid = len(text) == _LENGTH and z85.encode(raw(text)) == text.encode("ascii")
    # Z85 of a foreign character or of a number beyond 32 bits.
    except Exception:
        return None
    return text if valid else None


def _write_new(path: Path, text: str, mode: int) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise _exists(path) from None
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink()
        raise


def _exists(path: Path) -> InputError:
    return InputError("a key is never overwritten", f"{path}, which exists", "choose another name, or move it away")

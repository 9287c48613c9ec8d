"""Key pairs of agents: Ed25519 keys, one line per file."""

import base64
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gradslide._support.errors import InputError, require

PUBLIC, SECRET = "ed25519:", "ed25519-secret:"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DIGITS = 43  # of 32 bytes in base64
_LONGEST = 200
# Keys of former releases: 40 characters of Z85.
_FORMER = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


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


def key_pair(secret: bytes) -> KeyPair:
    """The key pair of a secret key of 32 bytes."""
    public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    return KeyPair(public_text(public), SECRET + _digits(secret))


def make_key_pair(name: str, folder: str | os.PathLike[str] = ".", *, replace: bool = False) -> KeyPair:
    """Make a key pair, and write NAME.secret (mode 0600) and NAME.public into a folder.

    Nothing is overwritten. With `replace`, files that are there are renamed to NAME.secret.1,
    NAME.public.1 and so on.
    """
    require(bool(_NAME.fullmatch(name)), "a key's name must be a plain file name", repr(name), "for example hospital-a")
    paths = {kind: Path(folder) / f"{name}.{kind}" for kind in ("secret", "public")}
    for path in paths.values():
        if os.path.lexists(path) and not replace:
            raise _exists(path)
    pair = key_pair(Ed25519PrivateKey.generate().private_bytes_raw())
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _set_aside(paths.values())
        _write_new(paths["secret"], pair.secret, 0o600)
        try:
            _write_new(paths["public"], pair.public, 0o644)
        except BaseException:
            paths["secret"].unlink()
            raise
    except OSError as error:
        got = f"{folder} ({error.strerror})"
        raise InputError("keys need a folder that can be written to", got, "choose another") from None
    return pair


def read_secret(path: str | os.PathLike[str]) -> KeyPair:
    """Read the key pair of a secret file, which only its owner may be able to open.

    Raises
    ------
    InputError
        If there is no key in the file, or others can read it.
    """
    rule, remedy = f"{path} must hold a secret key, {SECRET}...", "make one with: gradslide keys new NAME"
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(_LONGEST)
    except OSError as error:
        raise InputError(rule, error.strerror, remedy) from None
    if os.name == "posix" and mode & 0o077:
        secrecy = f"{path} must be for its owner alone"
        raise InputError(secrecy, f"mode {mode:04o}", f"run chmod 600 {path}, or make a new key if others had access")
    text = content.decode("ascii", "replace").strip()
    secret = _bytes_of(text, SECRET)
    if secret is None:
        raise _no_key(rule, text, "something else", remedy)
    return key_pair(secret)


def read_public(source: str | os.PathLike[str]) -> str:
    """Read a public key, given as its text, or as the path of a file that holds it."""
    if isinstance(source, str) and _bytes_of(source.strip(), PUBLIC) is not None:
        return source.strip()
    rule = f"a public key must be {PUBLIC} and {_DIGITS} characters, or a file that holds them"
    remedy = "copy it from the neighbour's NAME.public"
    try:
        with open(source, "rb") as file:
            text = file.read(_LONGEST).decode("ascii", "replace").strip()
    except (OSError, ValueError):
        given = os.fspath(source)
        # A secret key is not for logs.
        shown = "a secret key" if isinstance(given, str) and SECRET in given else repr(given)
        raise _no_key(rule, given, shown, remedy) from None
    if _bytes_of(text, PUBLIC) is None:
        kind = "a secret key" if text.startswith(SECRET) else "another content"
        raise _no_key(rule, text, f"{kind} in {source}", remedy)
    return text


def signature(own: KeyPair, content: bytes) -> str:
    """Sign content with the secret key; as text."""
    return _digits(Ed25519PrivateKey.from_private_bytes(raw(own.secret)).sign(content))


def is_signed(public: str, content: bytes, signed: str) -> bool:
    """Whether a signature is one of this content by the owner of a public key."""
    try:
        padded = signed + "=" * (-len(signed) % 4)
        Ed25519PublicKey.from_public_bytes(raw(public)).verify(base64.urlsafe_b64decode(padded), content)
    except (InvalidSignature, ValueError):
        return False
    return True


def raw(key: str) -> bytes:
    """The 32 bytes of a key."""
    return base64.urlsafe_b64decode(key.rpartition(":")[2] + "=")


def public_text(key: bytes) -> str:
    """A public key of 32 bytes as text."""
    return PUBLIC + _digits(key)


def _digits(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode("ascii").rstrip("=")


def _bytes_of(text: str, prefix: str) -> bytes | None:
    """The bytes of a key with this prefix, if the text is one."""
    if not text.startswith(prefix) or len(text) != len(prefix) + _DIGITS:
        return None
    try:
        key = raw(text)
    except ValueError:
        return None
    return key if prefix + _digits(key) == text else None


def _no_key(rule: str, text: object, shown: str, remedy: str) -> InputError:
    """The error for what is no key; it knows the keys of former releases."""
    if isinstance(text, str) and _FORMER.fullmatch(text.strip()):
        shown = "a key of a former release"
        remedy = "make new ones with: gradslide keys new NAME --replace, at every site, and exchange the .public files"
    return InputError(rule, shown, remedy)


def _set_aside(paths: Iterable[Path]) -> None:
    for path in paths:
        if os.path.lexists(path):
            free = next(new for i in count(1) if not os.path.lexists(new := path.with_name(f"{path.name}.{i}")))
            path.rename(free)


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

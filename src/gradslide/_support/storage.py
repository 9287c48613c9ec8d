"""Files that hold arrays and JSON side by side: versioned, written atomically, read without pickle."""

import dataclasses
import importlib.util
import io
import itertools
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from gradslide._support.arrays import like, on_device, to_numpy
from gradslide._support.errors import InputError
from gradslide._support.types import Device

# Not on Windows.
fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None

_META = "meta.json"
# Kind and version of the files that runs are saved in.
CHECKPOINT = ("checkpoint", 5)


def require_writable(folder: Path) -> None:
    """Refuse a folder that cannot be created or written to."""
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        got = f"{existing} ({error.strerror})"
        raise InputError("results need a folder that can be written to", got, "choose another") from None


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file completely or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, which is on disk afterwards."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())


def locked(path: Path, *, waits: bool) -> IO[str]:
    """Open a file that one process at a time holds, until it is closed; on Windows any number may.

    Raises
    ------
    OSError
        If another process holds it, unless `waits`.
    """
    file = path.open("a", encoding="utf-8")
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def _umask() -> int:
    """The user's file mode mask; mkstemp would make files readable by the owner only."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write(
    path: str | os.PathLike[str], kind: str, version: int, meta: dict[str, Any], arrays: Mapping[str, Any]
) -> Path:
    """Write arrays (npz) with a JSON header that names kind and version."""
    header = json.dumps({"kind": kind, "version": version, **meta}).encode()
    buffer = io.BytesIO()
    columns = {name: to_numpy(array) for name, array in arrays.items()}
    np.savez(buffer, allow_pickle=False, **{_META: np.frombuffer(header, dtype=np.uint8)}, **columns)
    return write_atomically(path, buffer.getvalue())


def read(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """The JSON header and the arrays of a file written by `write`."""
    rule = f"{path} must be a gradslide {kind} file"
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(rule, "no such file", "check the path") from None
    except OSError as error:
        raise InputError(rule, f"a file that cannot be read ({error.strerror})", "check the path") from None
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = dict(json.loads(arrays.pop(_META).tobytes()))
    # A damaged file can fail in any layer of zip, npy and JSON.
    except Exception as error:
        raise InputError(rule, f"a file that cannot be read ({type(error).__name__})", "check the path") from error
    if meta.get("kind") != kind:
        raise InputError(rule, f"a {meta.get('kind')} file", "check the path")
    if meta.get("version") != version:
        raise InputError(
            f"{rule} of format version {version}",
            f"version {meta.get('version')}",
            "write it anew with this release",
        )
    return meta, arrays


def flatten(value: Any, name: str, arrays: dict[str, Any]) -> Any:
    """JSON for a nest of dataclasses, tuples, lists and dicts, each tagged; its arrays go into `arrays`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value) if field.init)
        return {"fields": {key: flatten(getattr(value, key), f"{name}.{key}", arrays) for key in fields}}
    if isinstance(value, dict):
        return {"items": [[key, flatten(item, f"{name}.{key}", arrays)] for key, item in value.items()]}
    if isinstance(value, tuple | list):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [flatten(item, f"{name}.{index}", arrays) for index, item in enumerate(value)]}
    if hasattr(value, "shape"):
        arrays[name] = value
        return {"array": name}
    return value


def restore(template: Any, saved: Any, arrays: Mapping[str, Any], device: Device = None) -> Any:
    """Restore what `flatten` saved; the template provides dataclasses and named tuples.

    `device` is the device of arrays that the template has no counterpart for.
    """
    if not isinstance(saved, dict):
        return saved
    ((tag, content),) = saved.items()
    if tag == "array":
        return on_device(arrays[content], device) if template is None else like(arrays[content], template)
    if tag == "fields":
        leaves = {key: restore(getattr(template, key, None), item, arrays, device) for key, item in content.items()}
        return dataclasses.replace(template, **leaves)
    if tag == "items":
        known = template if isinstance(template, dict) else {}
        return {key: restore(known.get(key), item, arrays, device) for key, item in content}
    templates = template if isinstance(template, tuple | list) else ()
    pairs = list(itertools.zip_longest(templates, content))[: len(content)]
    parts = [restore(part, item, arrays, device) for part, item in pairs]
    if tag == "list":
        return parts
    return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)


def checkpoint_memory(path: Path) -> Any:
    """Return the part of a one-file checkpoint that is not the method's state."""
    meta, arrays = read(path, *CHECKPOINT)
    return restore(None, meta.get("memory"), arrays)

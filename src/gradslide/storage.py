"""Files that hold arrays and JSON side by side: versioned, written atomically, read without pickle."""

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradslide.errors import InputError

_META = "meta.json"


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Either the whole file is there afterwards, or what was there before."""
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


def _umask() -> int:
    """What the user's other files are not open to; mkstemp's own are open to nobody else."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write(
    path: str | os.PathLike[str], kind: str, version: int, meta: dict[str, Any], arrays: Mapping[str, Any]
) -> Path:
    """Write arrays (npz) with a JSON header that names kind and version."""
    import io

    header = json.dumps({"kind": kind, "version": version, **meta}).encode()
    buffer = io.BytesIO()
    columns = {name: np.asarray(array) for name, array in arrays.items()}
    np.savez(buffer, allow_pickle=False, **{_META: np.frombuffer(header, dtype=np.uint8)}, **columns)
    return write_atomically(path, buffer.getvalue())


def read(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """The JSON header and the arrays of a file written by `write`."""
    rule = f"{path} must be a gradslide {kind} file"
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(arrays.pop(_META).tobytes())
    except FileNotFoundError:
        raise InputError(rule, "no such file", "check the path") from None
    except (OSError, ValueError, KeyError) as error:
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
    """JSON for a nest of dataclasses, tuples, lists and dicts; its arrays go into `arrays`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, dict):
        return {str(key): flatten(item, f"{name}.{key}", arrays) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [flatten(item, f"{name}.{index}", arrays) for index, item in enumerate(value)]
    if hasattr(value, "shape"):
        arrays[name] = value
        return {"array": name}
    return value


def restore(template: Any, saved: Any, arrays: Mapping[str, Any]) -> Any:
    """A value of the template's structure with the leaves that `flatten` saved."""
    if dataclasses.is_dataclass(template) and not isinstance(template, type):
        leaves = {key: restore(getattr(template, key), item, arrays) for key, item in saved.items()}
        return dataclasses.replace(template, **leaves)
    if isinstance(saved, dict) and set(saved) == {"array"}:
        return arrays[saved["array"]]
    if isinstance(template, dict):
        return {key: restore(template.get(key), item, arrays) for key, item in saved.items()}
    if isinstance(template, tuple) and hasattr(template, "_fields"):
        return type(template)(*(restore(t, item, arrays) for t, item in zip(template, saved, strict=True)))
    if isinstance(template, tuple | list):
        return type(template)(restore(t, item, arrays) for t, item in zip(template, saved, strict=True))
    return saved

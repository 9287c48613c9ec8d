"""Examples as a user runs them, and as modules whose pieces can be tested."""

import importlib.util
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path, picture: str | None = None) -> str:
    """What the example prints. A warning is an error, and the picture must be there. name: its path, without .py."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *([picture] if picture else [])]
    printed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=400).stdout
    picture = picture or f"{Path(name).name}.png"
    assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert f"written: {picture}" in printed
    return printed


def load(name: str):
    spec = importlib.util.spec_from_file_location(f"example_{Path(name).name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""Every example runs as a user would run it, and draws its picture."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: object, folder: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=300).stdout


def test_streaming(tmp_path):
    printed = run("streaming.py", folder=tmp_path)
    assert (tmp_path / "streaming.png").read_bytes().startswith(b"\x89PNG")
    assert "the same answer to the last bit: True" in printed
    assert "times as fast" in printed

"""Every example runs as a user would run it, and draws its picture."""

from example_runs import run


def test_streaming(tmp_path):
    printed = run("streaming", tmp_path)
    assert "the same answer to the last bit: True" in printed
    assert "times as fast" in printed

"""The parts of `benchmarks/auto.py`."""

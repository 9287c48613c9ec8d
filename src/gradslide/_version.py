"""The version, read by the package and by what it writes."""

__version__ = "0.1.0"

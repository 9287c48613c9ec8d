"""One agent in a process of its own, from a TOML file to its results; in `local`, a network of them
on one machine.
"""

"""Experiments: from a spec file to runs, tables, files and plots.

`spec` reads a TOML file, `build` turns its tables into objects, `run` solves over each network,
`summary` and `tables` present the results, `files` writes them. `info` says what is installed,
`machine` measures what the machine does. `compare` runs methods against each other, `reproduce` the
experiments of the paper, `agent` one agent among peers; `parallel` runs many solves in worker
processes. Arguments of the command line are read in `gradslide.cli`, pages are made in
`gradslide.report`.
"""

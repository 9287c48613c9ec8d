"""Comparisons of methods: problems x networks x conditions x methods, each with its default step
and the best of a grid.

`spec` reads the file, `task` and `work` are single runs, `run` makes them in parallel and caches
their outcomes, `summary` takes medians over seeds, `tables`, `plots` and `files` present them.
"""

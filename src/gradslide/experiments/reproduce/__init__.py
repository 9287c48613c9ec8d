"""The paper's tables and figures, and experiments beyond them: each published figure beside ours.

`catalogue` runs the experiments by name, `paper` holds the paper's problem, networks and figures,
`report` the results in all formats. Each experiment has a module or package of its own: `runs` is
what a worker process does, `experiment` makes the tasks and the tables.

The package is part of the wheel: `gradslide reproduce` must find it in every installation, and the
report page knows the names of its results.
"""

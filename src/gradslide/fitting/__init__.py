"""Fits of regressions by sites that keep their rows.

`fit` is what every site does, wherever the others are. It builds on `objective` (what is minimized),
`columns` (means and scales that sites agree on), `scaled` (the problem in scaled columns) and
`optimum` (what sites add up at the end). `sites` shares out tables in one process: there is `gs.fit`.
"""

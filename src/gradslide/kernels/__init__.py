"""Compiled loops that replace plain NumPy code and give the same results.

`sliding` and `device_sliding` run the inner loop of primal-dual sliding on a CPU (`tiles`,
`sweeps`) and on a GPU (`triton_step`); `rows_pass` computes values and gradients of losses;
`logistic_steps` runs the inner loop of DCS. Methods and losses call these modules from outside;
nothing here decides what is computed. Modules that import numba are imported where they are used,
since that takes a while.
"""

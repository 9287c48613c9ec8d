"""Quadratic programs with linear constraints, of arrays.

`quadratic_program` solves one: `presolve` removes what is fixed and chooses units, `interior_point`
takes the steps, and `direct` factors their KKT matrices, with matrices of low rank from `low_rank`.
What makes programs of losses, sets and terms is in `problems`.
"""

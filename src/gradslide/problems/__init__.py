"""Problem statements: `Problem`, `LinearlyConstrained` and `Saddle`.

Here belong also the dual terms h (`gs.terms`) and the linear operator A with its norm and scaling.
Losses and domains, from which problems are built, have packages of their own. How a problem is
solved belongs in `methods`.
"""

"""What is solved: `Problem`, `LinearlyConstrained` and `Saddle`, with the dual terms h and the linear operator A.

Losses and domains, which problems are made of, have packages of their own. How a problem is solved belongs in
`methods`.
"""

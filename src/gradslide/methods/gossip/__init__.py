"""The adaptive gossip mode, `AutoPDS`.

`auto_pds` is the method, `inner` its three inner loops, `sums` what its agents add up, `rules` its decisions (L,
restarts, K), `setup` what agents learn before the first iteration, and `state` the records of its state.
"""

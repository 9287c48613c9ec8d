"""Agents on the processes of MPI, each of which owns a block of them.

`network` is what methods see (`MPI`), `partition` assigns agents to processes, `exchange` sends the
rows that others need, `communicator` is what networks of one group of processes share. `watchdog`,
with `rendezvous`, `hub` and `termination`, ends a run in which a rank has failed. `launch` starts
processes. Only this package imports mpi4py.
"""

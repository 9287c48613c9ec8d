"""Agents on MPI processes."""

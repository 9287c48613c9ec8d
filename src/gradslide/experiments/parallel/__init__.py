"""Many solves in parallel: a pool of worker processes, and a cache of their results on disk."""

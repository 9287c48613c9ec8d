"""A whole network of agents on one machine, for trying out: one process each, which gets its own rows alone."""

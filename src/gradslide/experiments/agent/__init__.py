"""One agent in a process of its own, from a TOML file to its results; and a whole network of them on one machine."""

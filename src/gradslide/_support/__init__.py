"""Code that all packages may use and that has nothing to do with optimization.

Here belong helpers that would be as useful in another numerical library: arrays, errors, storage,
randomness, interrupts. Nothing here imports another package of gradslide.
"""

"""What every other package may use and that knows nothing of optimization: arrays, errors, storage, randomness.

A module belongs here if it would be as useful in another numerical library. Nothing here imports any other package of
gradslide.
"""

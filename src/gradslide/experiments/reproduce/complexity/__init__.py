"""Gradients, rounds and samples against 1/eps, with the slopes of Theorems 1 and 2."""

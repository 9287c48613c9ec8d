"""Gradients and rounds on many networks."""

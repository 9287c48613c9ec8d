"""Gradients and rounds to one accuracy on 40 networks."""

"""Saddle points and linear constraints: an operator A in the place of a network."""

from gradslide.saddle.problem import LinearlyConstrained, Saddle

__all__ = ["LinearlyConstrained", "Saddle"]

"""Quadratic programs with linear constraints: an interior point method, and a matrix that it takes.

It knows arrays only. What makes programs of losses, sets and terms is in `problems`.
"""

"""Who is linked with whom: `Graph`, topologies, spectrum, distances, mixing matrices, Chebyshev polynomials of them.

What belongs here follows from the graph alone. How messages travel along its edges belongs in `network`.
"""

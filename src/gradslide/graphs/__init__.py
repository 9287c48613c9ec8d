"""Networks of agents as graphs.

Here belong `Graph` with its topologies, Laplacian, spectrum and distances, the mixing matrices of
`gs.mixing`, and polynomials in them. Everything is computed from the graph alone: sending messages
along its edges belongs in `network`.
"""

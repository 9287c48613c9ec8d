"""A network of agents on one machine, for trials: one process for each agent, which receives its
own rows only.
"""

"""The adaptive gossip mode, `AutoPDS`: an accelerated outer loop that finds L and restarts, around exchanges with
neighbours.

What it takes from the network, its inner loops, and the rules by which agents decide alike belong here.
"""

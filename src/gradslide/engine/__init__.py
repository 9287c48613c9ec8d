"""The one loop: `solve` steps a method, observes, decides when to stop, and saves.

Stopping, checkpoints and observation of any method belong here. What one method does in an iteration belongs in
`methods`, what all agents exchange in `network`.
"""

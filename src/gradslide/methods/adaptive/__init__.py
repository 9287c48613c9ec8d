"""What auto mode is made of: a plan from the network, inner loops chosen by the problem, and ways to agree."""

"""What can be proved: schedules (Theorems 1 to 3 as data), guarantees (bounds), certificates, reference optima.

Functions here take numbers and give numbers, and are tested without a solver where they can be. Methods use them, never
the other way round.
"""

"""Theory: schedules (Theorems 1 to 3 as data), bounds, certificates and reference optima.

Functions here take numbers and return numbers, and are tested without a solver if possible. Methods
use them, never the other way round.
"""

"""Compiled inner loops that give the same iterates. Imported where they are used: numba takes a while."""

"""The command line: it reads arguments, calls the library, and prints.

Nothing is computed here, and nothing in the library imports it.
"""

"""The command line: arguments only. It reads them, calls the library and prints.

Nothing is computed here, and nothing in the library imports it. A user's mistake is one line on
standard error and exit code 1, never a traceback.
"""

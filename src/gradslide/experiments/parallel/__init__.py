"""Whole runs side by side: processes that do them, and what they have done on disk."""

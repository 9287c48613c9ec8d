"""Agents in processes of their own that talk to their neighbours over encrypted, authenticated connections."""

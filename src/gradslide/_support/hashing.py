"""Hashes that name things: settings, schemas, results."""

import hashlib


def digest(content: bytes, size: int = 16) -> str:
    """Return a hash of so many bytes, in hexadecimal."""
    return hashlib.blake2b(content, digest_size=size).hexdigest()

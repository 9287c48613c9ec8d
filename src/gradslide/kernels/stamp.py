"""A checksum of this package: cached code is recompiled when any of its files changes.

numba only checks the file of the function itself and the values that it closes over: compiled
functions close over `STAMP`.
"""

import zlib
from pathlib import Path

STAMP = zlib.crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))) | 1

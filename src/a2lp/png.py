"""PNG files without Pillow: for the demo and for notebooks in a slim install."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np


def encode(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """The PNG file of grey pixels (h, w), or of red, green and blue ones (h, w, 3)."""
    height, width = pixels.shape[:2]
    lines = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))  # each begins with its filter: none
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if pixels.ndim == 2 else 2, 0, 0, 0)  # 8 bits
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

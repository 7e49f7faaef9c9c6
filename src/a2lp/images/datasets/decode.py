"""From the bytes of an image file to RGB pixels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from a2lp.errors import CorruptImageError

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

EXTENSIONS = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
)
# What people have beside them and may believe to be read.
UNREAD = frozenset(
    {".heic", ".heif", ".avif", ".jxl", ".jp2", ".svg", ".psd", ".ico", ".tga", ".dng", ".cr2", ".nef", ".arw"}
)
# Pillow also opens formats that start other programs (EPS); pictures come in these.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")


def decode(encoded: bytes | memoryview, file: str) -> Pixels:
    """The pixels of an encoded image as uint8 (h, w, 3), rotated by its EXIF orientation.

    Parameters
    ----------
    encoded : bytes
        The whole file: JPEG, PNG, GIF, BMP, WebP, TIFF or PPM. Of several frames, the first.
    file : str
        What an error calls it.
    """
    try:
        with Image.open(io.BytesIO(encoded), formats=_FORMATS) as image:
            limit = Image.MAX_IMAGE_PIXELS
            if limit is not None and image.width * image.height > limit:
                raise CorruptImageError(file, _too_large(f"it claims {image.width} x {image.height} pixels"))
            ImageOps.exif_transpose(image, in_place=True)
            return _rgb(image, file)
    except CorruptImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise CorruptImageError(file, _too_large("it claims more pixels than can be")) from error
    except Exception as error:  # on damaged files, Pillow's readers raise whatever they stumble over
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        if isinstance(error, UnidentifiedImageError):
            reason = "it is none of " + ", ".join(_FORMATS)
        raise CorruptImageError(file, reason) from error


def _rgb(image: Image.Image, file: str) -> Pixels:
    if image.mode.startswith("I"):  # 16 bits: Pillow's own conversion would clip them to white
        grey = np.asarray(image).astype(np.int64)
        if grey.min() < 0 or grey.max() > 0xFFFF:
            raise CorruptImageError(file, "it has more than 16 bits for each pixel")
        grey = (grey * 255 + 0x7FFF) // 0xFFFF
        return np.repeat(grey.astype(np.uint8)[:, :, None], 3, axis=2)
    if image.mode == "F":
        raise CorruptImageError(file, "its pixels are floating point numbers, which have no fixed white")
    if image.mode in {"P", "PA"} and "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow warns on the direct way
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _too_large(claim: str) -> str:
    limit = Image.MAX_IMAGE_PIXELS
    return f"{claim} (at most {limit} are decoded, since a small file can claim enough to fill all memory)"

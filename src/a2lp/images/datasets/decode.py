"""From the bytes of an image file to RGB pixels, and from there to the view that a network sees."""

from __future__ import annotations

import io
import threading
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from a2lp.errors import CorruptImageError
from a2lp.images.view import View

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

EXTENSIONS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".avif", ".heic", ".heif"),
)
# Other image files, which are left out with a warning.
UNREAD = (".jxl", ".jp2", ".svg", ".psd", ".ico", ".tga", ".dng", ".cr2", ".nef", ".arw")
# Pillow also opens formats that start other programs (EPS).
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "AVIF", "HEIF")
_MOST_PIXELS = 89_478_485  # Pillow's own limit: a small file can claim enough pixels to fill all memory
_LIMIT = threading.Lock()


@cache
def _formats() -> tuple[str, ...]:
    """The formats that can be read here: HEIF needs a package of its own."""
    try:
        import pillow_heif
    except ImportError:
        return tuple(name for name in _FORMATS if name != "HEIF")
    pillow_heif.register_heif_opener()
    return _FORMATS


def _open(encoded: bytes | memoryview, file: str, side: int | None = None) -> Image.Image:
    """An image whose pixels are not decoded yet; large JPEG files will be at a half, quarter or eighth of their size.

    Pillow refuses large images when they are opened, before their size can be reduced, so its limit is lifted for that
    moment and checked here instead.
    """
    with _LIMIT:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            image = Image.open(io.BytesIO(encoded), formats=_formats())
        finally:
            Image.MAX_IMAGE_PIXELS = limit
    width, height = image.size
    shrink = next((s for s in (1, 2, 4) if width * height <= _MOST_PIXELS * s * s), 8)
    if side is not None:
        shrink = max(shrink, next((s for s in (8, 4, 2) if min(width, height) >= 2 * s * side), 1))
    if shrink > 1:
        image.draft("RGB", (width // shrink, height // shrink))  # only JPEG files follow it
    if image.width * image.height > _MOST_PIXELS:
        raise CorruptImageError(
            file,
            f"it has {width} x {height} pixels, and at most {_MOST_PIXELS} are decoded, or 64 times as many of a JPEG",
        )
    return image


def decode(encoded: bytes | memoryview, file: str, side: int | None = None) -> Pixels:
    """The pixels of an encoded image as uint8 (h, w, 3), rotated by its EXIF orientation.

    Of several frames, the first is decoded. ``file`` is the name of the image in error messages. Where only a picture
    of ``side`` pixels is wanted, a JPEG may be decoded at a fraction of its size, at least twice as large as that.
    """
    try:
        with _open(encoded, file, side) as image:
            ImageOps.exif_transpose(image, in_place=True)
            return _rgb(image, file)
    except CorruptImageError:
        raise
    except UnidentifiedImageError as error:
        if "HEIF" not in _formats() and bytes(encoded[4:12]) in (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftyphevc"):
            raise CorruptImageError(file, "HEIC images need a package: pip install pillow-heif") from error
        raise CorruptImageError(file, f"it is none of {', '.join(_formats())}") from error
    except Exception as error:  # damaged files make Pillow raise almost anything
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
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
        image = image.convert("RGBA")  # Pillow warns if it is converted directly
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def resized(image: Pixels, view: View) -> Pixels:
    """An image (h, w, 3) resized and cropped to a view, (size, size, 3); bilinear, with antialiasing."""
    height, width = image.shape[:2]
    shorter = min(height, width)
    new_height, new_width = height * view.resize // shorter, width * view.resize // shorter
    top, left = round((new_height - view.crop) / 2), round((new_width - view.crop) / 2)
    bilinear = Image.Resampling.BILINEAR
    if shorter == view.resize:
        cropped = image[top : top + view.crop, left : left + view.crop]
    else:
        # only the crop is computed: a whole strip of 1 x 1,000,000 pixels would be too large for memory
        y, x = height / new_height, width / new_width
        box = (left * x, top * y, min((left + view.crop) * x, width), min((top + view.crop) * y, height))
        cropped = np.asarray(Image.fromarray(image).resize((view.crop, view.crop), bilinear, box=box))
    if view.output == view.crop:
        return cropped
    return np.asarray(Image.fromarray(cropped).resize((view.output, view.output), bilinear))

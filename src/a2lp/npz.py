"""Arrays in .npz and .npy files: checked before anything is unpacked, and never unpickled.

The directory of an archive and the header of each array both state the array's size. Either may be wrong, so both are
compared with a limit and with each other, and memory is used only as the bytes arrive.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from a2lp.checks import listed, shown
from a2lp.errors import A2LPError, FeatureFileError, InputError
from a2lp.files import reading

NDArray = np.ndarray[Any, Any]
_Header = tuple[tuple[int, ...], np.dtype[Any], Literal["C", "F"]]

# Real archives unpack to a few times their size; one that exceeds both limits was made to fill the memory.
UNPACKED_BYTES = 1 << 30
UNPACKED_RATIO = 20
_BLOCK = 1 << 20  # bytes that are unpacked at a time


def names(path: str | Path, expected: str, error: type[A2LPError] = FeatureFileError) -> list[str]:
    """The names of the arrays in an .npz file."""
    with reading(path, expected, error=error) as size, zipfile.ZipFile(path) as archive:
        return list(_arrays(archive, size))


def read(
    path: str | Path,
    expected: str,
    required: Iterable[str],
    optional: Iterable[str] = (),
    error: type[A2LPError] = FeatureFileError,
) -> dict[str, NDArray]:
    """The ``required`` arrays of plain numbers or text from an .npz file, and the ``optional`` ones that it has.

    ``expected`` says in messages what the file should be, and ``error`` is the class of the exception.
    """
    required = list(required)
    with reading(path, expected, error=error) as size, zipfile.ZipFile(path) as archive:
        members = _arrays(archive, size)
        if any(name not in members for name in required):
            raise InputError(f"expected {expected}, with the arrays {listed(required)}; found {listed(members)}.")
        wanted = [*required, *(name for name in optional if name in members)]
        return {name: _unpack(archive, members[name], f"the array `{name}`") for name in wanted}


def read_npy(path: str | Path, expected: str, mapped_from: int) -> NDArray:
    """The array of an .npy file; a file of ``mapped_from`` bytes or more is mapped into memory, not read."""
    with reading(path, expected) as size, Path(path).open("rb") as file:
        shape, dtype, order = _read_header(file, size, "the array")
        if size >= mapped_from:
            return np.memmap(path, dtype, "r", file.tell(), shape, order)
        return np.ndarray(shape, dtype, np.fromfile(file, np.uint8), order=order)


def zip_members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members of an archive of ``size`` bytes by name, checked before any is unpacked."""
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        if member.filename in members:
            raise InputError(f"the archive has two members {shown(member.filename)}. Make it again.")
        if member.flag_bits & 1:
            raise InputError(f"the member {shown(member.filename)} is encrypted. Save it without a password.")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"the member {shown(member.filename)} is packed in a way that NumPy and torch never use.")
        members[member.filename] = member
    packed = sum(member.compress_size for member in members.values())
    check_growth(sum(member.file_size for member in members.values()), size)
    if packed > size:
        raise InputError(f"the archive has {size} bytes and claims {packed} of packed data. It is damaged or forged.")
    return members


def check_growth(unpacked: int, size: int) -> None:
    """Refuse a file of ``size`` bytes that would take up far more memory than files of its kind do."""
    if unpacked > max(UNPACKED_BYTES, UNPACKED_RATIO * size):
        raise InputError(
            f"the file has {size} bytes and claims {unpacked} unpacked, which may fill the memory; at most 1 GiB, or "
            f"{UNPACKED_RATIO} times the file, is read. If you trust it, save it again without compression."
        )


def _arrays(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    members = zip_members(archive, size)
    return {name.removesuffix(".npy"): member for name, member in members.items() if name.endswith(".npy")}


def _read_header(file: Any, size: int, what: str) -> _Header:
    """The shape, dtype and memory order of the array in an .npy file of ``size`` bytes."""
    version = np.lib.format.read_magic(file)
    if version != (1, 0):  # the others are for records with many fields, and their headers may have 4 GiB
        raise InputError(f"{what} has the .npy version {version}; expected (1, 0), that of plain numbers and text.")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in "biufSU":
        raise InputError(
            f"{what} holds {shown(str(dtype))} values; expected plain numbers or text, since reading objects can run "
            "code. Save it as such: .astype(float), .astype(int), .astype(str)."
        )
    if min(shape, default=0) < 0 or dtype.itemsize == 0:
        raise InputError(f"{what} claims shape {shown(shape)} of {dtype}, which no array has. Fetch or make it again.")
    _check_size(shape, dtype, size - file.tell(), what)
    return shape, dtype, "F" if fortran else "C"


def _check_size(shape: tuple[int, ...], dtype: np.dtype[Any], found: int, what: str) -> None:
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != found:
        raise InputError(
            f"{what} claims shape {shown(shape)} of {dtype}, which is {shown(claimed)} bytes; found {found}: it is cut "
            "short or damaged. Fetch or make it again."
        )


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, what: str) -> NDArray:
    with archive.open(member) as file:
        shape, dtype, order = _read_header(file, member.file_size, what)
        # the system allots memory only where it is written to
        content, done = np.empty(member.file_size - file.tell(), np.uint8), 0
        while block := file.read(_BLOCK):  # to the end, where zipfile compares the checksum
            content[done : done + len(block)] = np.frombuffer(block, np.uint8)
            done += len(block)
    _check_size(shape, dtype, done, what)
    return np.ndarray(shape, dtype, content, order=order)

"""Archives and arrays that are not what they claim to be; each is refused before it fills the memory."""

from __future__ import annotations

import io
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from a2lp import npz
from a2lp.errors import DatasetError, FeatureFileError

KINDS = st.sampled_from(["?", "i1", "u2", ">i4", "u8", "f2", "<f4", ">f8", "S3", "U2", ">U1"])


@given(st.data(), KINDS, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), st.booleans())
@settings(max_examples=150, deadline=None)
def test_arrays_are_read_as_numpy_reads_them(data: Any, kind: str, shape: tuple[int, ...], fortran: bool) -> None:
    array = data.draw(hnp.arrays(np.dtype(kind), shape))
    array = np.asfortranarray(array) if fortran and array.ndim else array
    buffer = io.BytesIO()
    data.draw(st.sampled_from([np.savez, np.savez_compressed]))(buffer, x=array, other=np.zeros(3))
    path = _file(buffer.getvalue(), ".npz")
    found = npz.read(path, "x", ["x"], ["y"])
    assert list(found) == ["x"]
    assert npz.names(path, "x") == ["x", "other"]
    with np.load(path) as expected:
        _same(found["x"], expected["x"])
    single = io.BytesIO()
    np.save(single, array)
    path = _file(single.getvalue(), ".npy")
    _same(npz.read_npy(path, "x", 1 << 20), np.load(path))
    if array.size:
        mapped = npz.read_npy(path, "x", 0)
        assert isinstance(mapped, np.memmap)
        _same(np.asarray(mapped), np.load(path))


_FOLDER: list[Path] = []


@pytest.fixture(autouse=True, scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    _FOLDER.append(tmp_path_factory.mktemp("npz"))


def _file(content: bytes, suffix: str) -> Path:
    path = _FOLDER[0] / f"x{suffix}"
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    return path


def _same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def npy(header: str, content: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode() + b"\n"
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + content


def described(kind: str, shape: str, content: bytes = b"") -> bytes:
    return npy(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}", content)


GOOD = described("<f4", "(2,)", bytes(8))

ARRAYS: dict[str, tuple[bytes, str]] = {
    "short": (described("<f4", "(3,)", bytes(8)), r"claims shape \(3,\) of float32, which is 12 bytes; found 8"),
    "long": (described("<f4", "(1,)", bytes(8)), r"which is 4 bytes; found 8"),
    "huge": (described("<f4", "(1000000, 1000000)", bytes(8)), r"which is 4000000000000 bytes; found 8"),
    "beyond 64 bits": (described("<f4", f"({10**18}, {10**18})", bytes(8)), r"bytes; found 8"),
    "many digits": (described("<f4", f"({'9' * 5000},)", bytes(8)), r"cut short or damaged"),
    "negative": (described("<f4", "(-1, -2)", bytes(8)), r"claims shape \(-1, -2\) of float32, which no array has"),
    "no bytes each": (described("<U0", "(1000000000000,)"), r"claims shape \(1000000000000,\)"),
    "objects": (described("|O", "(1,)", bytes(8)), r"holds 'object' values.*\.astype\(str\)"),
    "records": (
        npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", bytes(8)),
        r"expected plain num",
    ),
    "dates": (described("<M8[s]", "(1,)", bytes(8)), r"expected plain numbers or text"),
    "unclosed": (npy("{'descr': '<f4', 'shape': ((((", bytes(8)), r"cut short or damaged"),
    "nested": (npy("(" * 9000, bytes(8)), r"cut short or damaged"),
    "negated": (npy("{'descr': '<f4', 'shape': " + "-" * 9000 + "1}", bytes(8)), r"cut short or damaged"),
    "a header without end": (npy(" " * 60000, bytes(8)), r"cut short or damaged"),
    "another version": (npy("{}", version=(2, 0)), r"has the \.npy version \(2, 0\)"),
    "no header": (b"\x93NUMPY", r"cut short or damaged"),
    "something else": (b"PAR1" * 9, r"cut short or damaged"),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("packed", [True, False], ids=["npz", "npy"])
def test_arrays_that_are_refused(name: str, packed: bool) -> None:
    content, message = ARRAYS[name]
    if packed:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", content)
        content = buffer.getvalue()
    path = _file(content, ".npz" if packed else ".npy")
    tracemalloc.start()
    with pytest.raises(FeatureFileError, match=message) as caught:
        npz.read(path, "a file", ["x"]) if packed else npz.read_npy(path, "a file", 1 << 20)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
    assert str(path) in str(caught.value)


def archive(*members: tuple[str, bytes, int]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as made:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content, how in members:
            made.writestr(name, content, how)
    return buffer.getvalue()


def edited(content: bytes, offset: int, value: bytes) -> bytes:
    """The directory's entry of the only member with some bytes changed."""
    at = content.index(b"PK\x01\x02") + offset
    return content[:at] + value + content[at + len(value) :]


STORED = archive(("x.npy", GOOD, zipfile.ZIP_STORED))
ZIPS: dict[str, tuple[Callable[[], bytes], str]] = {
    "twice": (lambda: archive(("x.npy", GOOD, 0), ("x.npy", GOOD, 0)), r"has two members 'x\.npy'"),
    "encrypted": (lambda: edited(STORED, 8, b"\x01"), r"member 'x\.npy' is encrypted"),
    "LZMA": (lambda: archive(("x.npy", GOOD, zipfile.ZIP_LZMA)), r"packed in a way that NumPy and torch never use"),
    "BZIP2": (lambda: archive(("y.npy", b"", zipfile.ZIP_BZIP2)), r"packed in a way that NumPy and torch never use"),
    "a size that is too small": (lambda: edited(STORED, 24, struct.pack("<I", 90)), r"found \d+: it is cut short"),
    "a size of 4 GiB": (lambda: edited(STORED, 24, b"\xfe" * 4), r"claims 4278124286 unpacked, which may fill"),
    "more packed than there is": (lambda: edited(STORED, 20, b"\xff\xff\xff\x01"), r"claims 33554431 of packed data"),
    "an offset beyond the end": (lambda: edited(STORED, 42, b"\xff\xff\xff\x01"), r"cut short or damaged"),
    "a wrong checksum": (lambda: edited(STORED, 16, b"abcd"), r"cut short or damaged.*CRC"),
    "a bomb": (lambda: bomb(2 << 30), r"claims \d+ unpacked, which may fill the memory; at most 1 GiB, or 20 times"),
    "a bomb with a small size": (lambda: edited(bomb(64 << 20), 24, struct.pack("<I", 200)), r"found|damaged"),
    "no archive": (lambda: b"x" * 100, r"cut short or damaged"),
    "nothing": (lambda: b"", r"cut short or damaged"),
    "another array": (lambda: archive(("y.npy", GOOD, 0)), r"expected a file, with the arrays `x`; found `y`"),
}


def bomb(size: int) -> bytes:
    """An array of zeros, packed."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made,
        made.open("x.npy", "w", force_zip64=size > 1 << 30) as file,
    ):
        file.write(described("|u1", f"({size},)"))
        for _ in range(size >> 24):
            file.write(bytes(1 << 24))
    return buffer.getvalue()


@pytest.mark.parametrize("name", ZIPS)
def test_archives_that_are_refused(name: str) -> None:
    make, message = ZIPS[name]
    path = _file(make(), ".npz")
    tracemalloc.start()
    with pytest.raises(DatasetError, match=message) as caught:
        npz.read(path, "a file", ["x"], error=DatasetError)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
    assert str(path) in str(caught.value)


def test_a_large_archive_of_real_data_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for what grows; an archive that is large itself may hold more."""
    monkeypatch.setattr(npz, "UNPACKED_BYTES", 1 << 10)
    array = np.random.default_rng(0).normal(size=4000)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=array)
    np.testing.assert_array_equal(npz.read(_file(buffer.getvalue(), ".npz"), "x", ["x"])["x"], array)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.zeros(10**6))
    with pytest.raises(FeatureFileError, match="20 times"):
        npz.read(_file(buffer.getvalue(), ".npz"), "x", ["x"])

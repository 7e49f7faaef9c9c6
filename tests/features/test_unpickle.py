"""Pickles of {class: vectors} are read; pickles that want anything else are refused, and do not run."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from a2lp.errors import FeatureFileError
from a2lp.features import load

RNG = np.random.default_rng(0)
VECTORS = {81: RNG.normal(size=(3, 4)).astype(np.float32), 80: RNG.normal(size=(2, 4)).astype(np.float32)}


def as_pt_map() -> dict[int, list[Any]]:
    content: dict[int, list[Any]] = collections.defaultdict(list)
    for key, rows in VECTORS.items():
        content[key].extend(rows)
    return content


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "content",
    [
        as_pt_map(),
        VECTORS,
        {key: list(rows) for key, rows in VECTORS.items()},
        {key: tuple(map(tuple, rows.tolist())) for key, rows in VECTORS.items()},
        {np.int64(key): [list(row) for row in rows] for key, rows in VECTORS.items()},  # of NumPy scalars
        collections.OrderedDict((str(key), np.asfortranarray(rows)) for key, rows in VECTORS.items()),
        {key: rows.astype(">f8") for key, rows in VECTORS.items()},
    ],
    ids=["defaultdict", "arrays", "lists of arrays", "plain", "scalars", "fortran", "big-endian"],
)
def test_real_pickles_are_read_in_their_own_order(tmp_path: Path, content: Any, protocol: int) -> None:
    path = tmp_path / "output.plk"
    path.write_bytes(pickle.dumps(content, protocol))
    found = load(path)
    assert np.array_equal(found.features, np.concatenate(list(VECTORS.values())))
    assert found.labels is not None
    assert found.labels.tolist() == [0, 0, 0, 1, 1]
    assert found.classes == ("81", "80")
    assert found.name == "output"


def test_the_names_that_numpy_1_and_python_2_wrote(tmp_path: Path) -> None:
    path = tmp_path / "output.pkl"
    modern = pickle.dumps(VECTORS, 2)
    assert b"numpy._core.multiarray" in modern or np.__version__.startswith("1.")
    path.write_bytes(modern.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert np.array_equal(load(path).features, np.concatenate(list(VECTORS.values())))
    data = np.float32([[1, -2]]).tobytes()  # Python 2: bytes are a string, and nothing encodes it
    old = (
        b"\x80\x02}K\x07cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x01K\x02\x86"
        b"cnumpy\ndtype\nU\x02f4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U"
        + bytes([len(data)]) + data + b"tbs."
    )  # fmt: skip
    path.write_bytes(old)
    assert load(path).features.tolist() == [[1, -2]]


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: Any, state: Any = None) -> None:
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> Any:
        return self.reduced


class Persistent(pickle.Pickler):
    """Refers to tensors as torch's files do."""

    def persistent_id(self, obj: Any) -> Any:
        return ("storage", "0") if isinstance(obj, set) else None


def persistent() -> bytes:
    buffer = io.BytesIO()
    Persistent(buffer).dump({1: {0}})
    return buffer.getvalue()


def raw_global(name: str, argument: str) -> bytes:
    """Protocol 0: the function by its text, called with some text; then a dict that would be fine."""
    return f"(dc{name}\n(S'{argument}'\ntR0(dI1\n(l(lF1.0\naas.".encode()


MALICIOUS = {
    "(posix|nt).system": lambda mark: pickle.dumps({1: Calls(os.system, f"touch {mark}")}),
    "os.system": lambda mark: raw_global("os\nsystem", f"touch {mark}"),
    "builtins.eval": lambda mark: pickle.dumps({1: Calls(eval, f"open({mark!r}, 'w')")}),
    "builtins.exec": lambda mark: pickle.dumps({1: Calls(exec, f"open({mark!r}, 'w')")}, 4),
    "__builtin__.open": lambda mark: raw_global("__builtin__\nopen", mark),
    "builtins.getattr": lambda mark: pickle.dumps({1: Calls(getattr, np.zeros(1), "tofile")}),
    "subprocess.Popen": lambda mark: pickle.dumps({1: Calls(subprocess.Popen, ["touch", mark])}),
    "numpy.load": lambda mark: raw_global("numpy\nload", mark),
    "numpy.ndarray.tofile": lambda mark: b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
    "torch._utils._rebuild_tensor_v2": lambda mark: pickle.dumps({1: torch.zeros(2, 2)}),
    "functools.partial": lambda mark: b"\x80\x04\x8c\x09functools\x8c\x07partial\x93.",
    "dtype 'O8'": lambda mark: pickle.dumps({1: np.array([[Calls(os.system, f"touch {mark}")]], dtype=object)}),
    r"dtype 'V\d+'": lambda mark: pickle.dumps({1: np.zeros((2, 2), dtype="f4,f4")}),
    "dtype 'U1'": lambda mark: pickle.dumps({1: np.full((2, 2), "a")}),
    "torch": lambda mark: persistent(),
}  # fmt: skip


@pytest.mark.parametrize("forbidden", MALICIOUS)
def test_malicious_pickles_are_refused_and_do_not_run(tmp_path: Path, forbidden: str) -> None:
    mark = tmp_path / "it-ran"
    path = tmp_path / "output.plk"
    path.write_bytes(MALICIOUS[forbidden](str(mark)))
    with pytest.raises(FeatureFileError, match=forbidden) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert not mark.exists()


def test_a_pickle_cannot_change_the_reader(tmp_path: Path) -> None:
    """BUILD sets attributes on whatever a pickle holds, so also on a function that find_class gave it."""
    path = tmp_path / "output.plk"
    for name in (
        "_codecs encode",
        "numpy dtype",
        "numpy ndarray",
        "numpy.core.multiarray scalar",
        "collections defaultdict",
    ):
        state = pickle.dumps((None, {"__defaults__": ("utf-16",), "__module__": "x", "code": "O8"}), 2)[2:-1]
        path.write_bytes(b"\x80\x02c" + name.replace(" ", "\n").encode() + b"\n" + state + b"b.")
        with pytest.raises(FeatureFileError):
            load(path)
        path.write_bytes(pickle.dumps(VECTORS, 2))
        assert np.array_equal(load(path).features, np.concatenate(list(VECTORS.values())))


MALFORMED = [
    (pickle.dumps([1, 2]), r"expected a pickled dict .*found a list of 2"),
    (pickle.dumps({}, 4), r"found an empty dict"),
    (pickle.dumps({1: [], 2: [[1.0]]}), r"class 1 holds a list of 0; expected a list of vectors"),
    (pickle.dumps({1: 5}), r"class 1 holds a int"),
    (
        pickle.dumps({"features": np.zeros((2, 2)), "labels": np.zeros(2)}),
        r"class 'labels' holds an array of shape \(2,\)",
    ),
    (pickle.dumps({1: [[1.0, 2.0], [1.0]]}), r"class 1 is ragged: vector 1 has 1 dimensions and vector 0 has 2"),
    (pickle.dumps({1: [[1.0, 2.0]], 2: [[1.0]]}), r"class 2 has vectors of 1 dimensions and the first class of 2"),
    (pickle.dumps({1: [["a"]]}), r"vector 0 of class 1 is a list of 1; expected"),
    (pickle.dumps({1: [np.zeros((2, 2))]}), r"vector 0 of class 1 is an array of shape \(2, 2\)"),
    (pickle.dumps({1: [[1.0, float("nan")]]}), r"features\[0, 1\] .*nan"),
    (pickle.dumps({1: [[1.0]], "1": [[2.0]]}), r"classes\[0\] and classes\[1\] are both '1'"),
    (
        pickle.dumps(VECTORS, 2).replace(b"K\x03K\x04\x86", b"K\x03K\x05\x86"),
        r"48 bytes for an array of shape \(3, 5\)",
    ),
]


@pytest.mark.parametrize(("data", "message"), MALFORMED, ids=[str(m) for _, m in MALFORMED])
def test_malformed_pickles_say_what_was_found(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "output.pickle"
    path.write_bytes(data)
    with pytest.raises(FeatureFileError, match=message):
        load(path)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_every_cut_is_an_error_of_ours(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "output.plk"
    whole = pickle.dumps(as_pt_map(), protocol)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FeatureFileError):
            load(path)


def tower(levels: int) -> bytes:
    """A tuple of the tuple before twice, on so many levels: 2**levels elements in a few bytes for each level."""
    return b"K\x01" + b"2\x86" * levels  # DUP, TUPLE2


HOSTILE = {
    "a key that is hashed for hours": b"\x80\x02}" + tower(60) + b"K\x01s.",
    "the same in a dict of protocol 0": b"\x80\x02(" + tower(60) + b"K\x01d.",
    "the same among others": b"\x80\x02}(K\x01K\x01" + tower(60) + b"K\x01u.",
    "the same in a set": b"\x80\x04\x8f(" + tower(60) + b"\x90.",
    "the same in a frozenset": b"\x80\x04(" + tower(60) + b"\x91.",
    "the same as an argument": b"\x80\x02ccollections\nOrderedDict\n(](" + tower(60) + b"K\x01\x86etR.",
    "the same as an encoding": b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00a" + tower(60) + b"tR.",
    "the same as a dtype": b"\x80\x02cnumpy\ndtype\n(" + tower(60) + b"tR.",
    "the same from outside": b"\x80\x02" + tower(60) + b"Q.",
    "the same as a class of vectors": b"\x80\x02}K\x01" + tower(60) + b"s.",
    "a key too deep for the interpreter": b"\x80\x02}" + b")" + b"\x85" * 3_000_000 + b"K\x01s.",
    "vectors too deep": b"\x80\x02}K\x01" + b"]" * 3_000_000 + b"a" * 2_999_999 + b"s.",
    "a list of bytes": b"\x80\x02}K\x01c__builtin__\nlist\n(X\x01\x00\x00\x00atRs.",
    "an array of a shape that multiplies": (
        b"\x80\x02}K\x07cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01(U\x01xJ\xff\xff\xff\x7fJ\xff\xff\xff\x7ft"
        b"cnumpy\ndtype\nU\x02f4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x04aaaatbs."
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused_in_no_time(tmp_path: Path, name: str) -> None:
    """In a process of their own: those that end the interpreter end that one, and a loop in C cannot be interrupted."""
    features, images = tmp_path / "output.plk", tmp_path / "mini-imagenet-cache-train.pkl"
    for path in (features, images):
        path.write_bytes(HOSTILE[name])
    code = (
        "import signal, sys; signal.alarm(20)\n"
        "from a2lp.errors import A2LPError\nfrom a2lp.features import load\nfrom a2lp.images import datasets\n"
        "for read, path in ((load, sys.argv[1]), (datasets.load, sys.argv[2])):\n"
        "    try: read(path)\n    except A2LPError as error: print(str(error)[:1000])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, features, tmp_path], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert str(features) in lines[0]
    assert str(images) in lines[1]


MEASURE = """
import sys
from pathlib import Path
from a2lp.errors import FeatureFileError
from a2lp.features import load
for path in sys.argv[1:]:
    try:
        load(path)
    except FeatureFileError as error:
        print(error)
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(peak.split()[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_small_files_cannot_take_all_memory(tmp_path: Path) -> None:
    large = np.zeros(20_000, dtype=np.float32)
    bombs = {
        "memo.plk": b"\x80\x02}r" + struct.pack("<I", 1 << 27) + b".",  # a memo of that many places
        "bytes.plk": b"\x80\x05\x96" + struct.pack("<Q", 1 << 31) + b"x.",  # a byte array of that length
        "again.plk": pickle.dumps({1: [large] * 30_000}),  # one vector, named again and again
        "list.plk": pickle.dumps({1: [[[1.0] * 1000] * 1000] * 1000}),
    }
    for name, data in bombs.items():
        (tmp_path / name).write_bytes(data)
    command = [sys.executable, "-c", MEASURE, *(str(tmp_path / name) for name in bombs)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [name for name in bombs if any(name in line for line in lines)] == list(bombs)
    assert "repeats itself" in lines[2]
    assert int(lines[-1]) < 1_000_000  # kilobytes; each would take two gigabytes or more

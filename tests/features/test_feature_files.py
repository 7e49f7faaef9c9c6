"""Round trips between formats, files that others wrote, and files that are not what they should be."""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from a2lp.errors import FeatureFileError, InputError, MissingExtraError, UnknownNameError
from a2lp.features import FeatureSet, load, save
from a2lp.features.parquet_footer import claimed_bytes

WRITABLE = [".npz", ".npy", ".safetensors", ".parquet"]
X = np.arange(12, dtype=np.float32).reshape(4, 3)
SMALL = FeatureSet(X, ["b", "a", "b", "a"], files=["1.jpg", "2.jpg", "3.jpg", "4.jpg"], about={"split": "novel"})

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@st.composite
def feature_sets(draw: st.DrawFn) -> FeatureSet:
    n, d, width = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.sampled_from([16, 32, 64]))
    finite = st.floats(allow_nan=False, allow_infinity=False, width=width)
    features = draw(hnp.arrays(f"float{width}", (n, d), elements=finite))
    classes = draw(st.none() | st.lists(text.filter(bool), min_size=1, max_size=4, unique=True))
    top = 10**12 if classes is None else len(classes) - 1
    labels = draw(st.none() | st.lists(st.integers(0, top), min_size=n, max_size=n))
    files = draw(st.none() | st.lists(text, min_size=n, max_size=n))
    about = draw(st.dictionaries(text, text | st.integers() | st.booleans() | st.lists(text), max_size=2))
    return FeatureSet(features, labels, classes, files, about=about)


def assert_same(one: FeatureSet, other: FeatureSet) -> None:
    assert one.features.dtype == other.features.dtype
    assert one.features.shape == other.features.shape
    assert one.features.tobytes() == other.features.tobytes()  # bit for bit: the sign of zero, too
    assert (one.labels is None) == (other.labels is None)
    assert one.labels is None or np.array_equal(one.labels, other.labels)
    assert (one.classes, one.files, one.about) == (other.classes, other.files, other.about)


@given(feature_sets(), st.lists(st.sampled_from(WRITABLE), min_size=2, max_size=3))
@settings(max_examples=150, deadline=None)
def test_any_format_to_any_keeps_everything(original: FeatureSet, route: list[str]) -> None:
    with TemporaryDirectory() as folder:
        current = original
        for i, suffix in enumerate(route):
            path = Path(folder) / f"step {i}{suffix}"
            save(current, path)
            current = load(path)
            assert current.name == f"step {i}"
        assert_same(current, original)


# ---- files that others wrote -----------------------------------------------------------------------------


def test_npz_with_bytes_and_a_numeric_type_of_its_own(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "x.npz", features=X.astype(np.uint8), labels=np.int16([1, 0, 1, 1]), classes=[b"a", b"\xc3\xa4"]
    )
    found = load(tmp_path / "x.npz")
    assert found.features.dtype == np.float32
    assert found.classes == ("a", "ä")
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("labels", "expected", "classes"),
    [(["3", "0", "10", "3"], [3, 0, 10, 3], None), (["b", "a", "b", "01"], [2, 1, 2, 0], ("01", "a", "b"))],
)
def test_csv_of_a_spreadsheet(
    tmp_path: Path, labels: list[str], expected: list[int], classes: tuple[str, ...] | None
) -> None:
    np.save(tmp_path / "x.npy", X)
    rows = [f'"{i}, ""quoted"".jpg";{label};1'.replace(";", ",") for i, label in enumerate(labels)]
    (tmp_path / "x.csv").write_text("file, label ,other\n" + "\n".join(rows) + "\n\n", encoding="utf-8-sig")
    found = load(tmp_path / "x.npy")
    assert found.labels is not None
    assert found.labels.tolist() == expected
    assert found.classes == classes
    assert found.files is not None
    assert found.files[3] == '3, "quoted".jpg'


def test_npy_alone_has_no_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    assert load(tmp_path / "x.npy").labels is None


def test_a_large_npy_stays_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2lp.features.numpy_files._MAPPED", 64)
    np.save(tmp_path / "x.npy", np.arange(60, dtype=np.float16).reshape(20, 3))
    found = load(tmp_path / "x.npy").features
    assert isinstance(found.base, np.memmap)
    np.testing.assert_array_equal(found, np.arange(60).reshape(20, 3))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-8])
    with pytest.raises(FeatureFileError, match="cut short or damaged"):
        load(tmp_path / "cut.npy")


def test_rows_that_are_not_finite_are_named_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2lp.features.feature_set._ROWS", 4)
    x = np.ones((10, 3))
    x[6, 2] = np.nan
    with pytest.raises(InputError, match=r"features\[6, 2\] \(row, column\) is nan"):
        FeatureSet(x)


@pytest.mark.parametrize("ids", [["7", "3", "x", "1"], [7, 3, 2**40, 1]])
def test_parquet_with_ids(tmp_path: Path, ids: list[Any]) -> None:
    pq.write_table(pa.table({"embedding": X.tolist(), "id": ids}), tmp_path / "x.parquet")
    assert load(tmp_path / "x.parquet").files == tuple(map(str, ids))


@pytest.mark.parametrize("kind", ["list", "large_list", "fixed", "columns", "sliced"])
def test_parquet_of_each_shape(tmp_path: Path, kind: str) -> None:
    rows = X.tolist()
    if kind == "columns":
        columns = {f"f{i}": pa.array(X[:, i]) for i in reversed(range(3))}
    else:
        types = {"list": pa.list_(pa.float32()), "large_list": pa.large_list(pa.float32())}
        columns = {"features": pa.array(rows, types.get(kind, pa.list_(pa.float32(), 3)))}
    names = pa.array(["b", "a", "b", "a"]).dictionary_encode()
    table = pa.table(columns | {"label": [7, 1, 7, 1], "class_name": names, "path": ["1", "2", "3", "4"]})
    table = table.slice(1) if kind == "sliced" else table
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    found = load(tmp_path / "x.parquet")
    start = kind == "sliced"
    assert np.array_equal(found.features, X[start:])
    assert found.classes == ("a", "b")
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0, 1, 0][start:]
    assert found.files == ("1", "2", "3", "4")[start:]


def test_others_can_read_what_we_write(tmp_path: Path) -> None:
    for suffix in WRITABLE:
        save(SMALL, tmp_path / f"x{suffix}")
    with np.load(tmp_path / "x.npz") as archive:
        assert archive["classes"][archive["labels"]].tolist() == ["b", "a", "b", "a"]
    assert np.array_equal(np.load(tmp_path / "x.npy"), X)
    assert (tmp_path / "x.csv").read_text().splitlines()[:2] == ["label,file", "b,1.jpg"]
    table = pq.read_table(tmp_path / "x.parquet")
    assert table.schema.field("embedding").type == pa.list_(pa.field("element", pa.float32()), 3)
    assert table["label"].to_pylist() == ["b", "a", "b", "a"]
    assert np.array_equal(safetensors.numpy.load_file(tmp_path / "x.safetensors")["features"], X)
    assert len({p.stat().st_mode for p in tmp_path.iterdir()}) == 1  # whoever may read one may read all
    assert {p.name for p in tmp_path.iterdir()} == {f"x{s}" for s in [*WRITABLE, ".csv", ".about.json"]}


# ---- writing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", WRITABLE)
def test_nothing_is_overwritten_without_force(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    save(SMALL, path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"exists already.*--force"):
        save(FeatureSet(X + 1), path)
    assert path.read_bytes() == before
    save(FeatureSet(X + 1), path, force=True)
    assert_same(load(path), FeatureSet(X + 1))  # nothing of the earlier labels, either


def test_a_csv_beside_is_not_overwritten_either(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("mine")
    with pytest.raises(InputError, match=r"x\.csv exists already"):
        save(SMALL, tmp_path / "x.npy")


def test_a_csv_that_an_interrupted_run_left_is_no_obstacle(tmp_path: Path) -> None:
    save(SMALL, tmp_path / "x.npy")
    (tmp_path / "x.npy").unlink()  # it is written last: a kill before that leaves the files beside it
    save(SMALL, tmp_path / "x.npy")
    assert_same(load(tmp_path / "x.npy"), SMALL)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.pkl", r"never written.*run code.*\.npz"),
        ("x.txt", r"'\.txt'; a feature file is written as \.npz"),
        ("nowhere/x.npz", r"no folder .*nowhere.*Create it"),
        ("folder.npz", r"is a folder"),
        ("n" * 254 + ".npz", r"cannot be written"),
    ],
)
def test_targets_that_cannot_be(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises((FeatureFileError, InputError), match=message):
        save(SMALL, tmp_path / name, force=True)


def test_missing_extras_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for suffix, package in ((".parquet", "pyarrow.parquet"), (".safetensors", "safetensors.numpy")):
        save(SMALL, tmp_path / f"x{suffix}")
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtraError, match=r"reading \.\w+ files.*\[label\]"):
            load(tmp_path / f"x{suffix}")
        with pytest.raises(MissingExtraError, match=r"writing \.\w+ files.*\[label\]"):
            save(SMALL, tmp_path / f"y{suffix}")


# ---- files that are not what they should be ----------------------------------------------------------------


def cut(suffix: str) -> Callable[[Path], None]:
    """A file of that format without its second half."""

    def make(path: Path) -> None:
        save(SMALL, path.with_name(f"whole{suffix}"))
        whole = path.with_name(f"whole{suffix}").read_bytes()
        path.write_bytes(whole[: len(whole) // 2])

    return make


def flipped(path: Path) -> None:
    """An archive with one byte of its compressed data changed."""
    save(FeatureSet(np.random.default_rng(0).normal(size=(50, 50))), path)
    data = bytearray(path.read_bytes())
    data[5000] ^= 0xFF
    path.write_bytes(data)


def written(suffix: str) -> Callable[[Path], None]:
    """A file of that format under a name of another."""

    def make(path: Path) -> None:
        save(SMALL, path.with_name(f"whole{suffix}"))
        path.with_name(f"whole{suffix}").rename(path)

    return make


def npz(**arrays: object) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


def table(**columns: object) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(columns), path)


def raw(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def npy_and(csv: str | bytes | None = None, about: str | None = None) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        np.save(path, X)
        if csv is not None:
            path.with_suffix(".csv").write_bytes(csv.encode() if isinstance(csv, str) else csv)
        if about is not None:
            path.with_suffix(".about.json").write_text(about)

    return make


def tensors(metadata: dict[str, str] | None = None, **arrays: np.ndarray) -> Callable[[Path], None]:
    return lambda path: safetensors.numpy.save_file(arrays, path, metadata=metadata)


def bfloat16(path: Path) -> None:
    header = json.dumps({"features": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))


def huge(path: Path) -> None:
    """An array whose header asks for more memory than there is."""
    np.save(path, X)
    true, lie = b"(4, 3), }", b"(4" + b"0" * 11 + b", 3)}"
    assert path.read_bytes().count(true.ljust(len(lie))) == 1
    path.write_bytes(path.read_bytes().replace(true.ljust(len(lie)), lie))


def directory(path: Path) -> None:
    path.mkdir()
    save(SMALL, path / "inside.npz")


NAN = np.where(X == 7, np.nan, X)

BAD_FILES: list[tuple[str, Callable[[Path], object], str]] = [
    ("x.npz", directory, r"is a folder; expected a NumPy archive"),
    ("x", directory, r"is a folder; expected a feature file.*inside\.npz"),
    *[(f"x{suffix}", os.mkfifo, r"not a regular file") for suffix in [*WRITABLE, ".plk"]],
    *[(f"x{suffix}", lambda p: p.symlink_to("/dev/zero"), r"not a regular file") for suffix in [*WRITABLE, ".plk"]],
    ("x.npz", lambda p: p.symlink_to("/proc/self/mem"), r"cannot be read: Input/output error"),
    ("x.npz", lambda p: None, r"does not exist.*cub, cifar_fs, digits"),
    ("x.csv", raw(b"label\n1"), r"'\.csv'; expected a file, \.npz.*belongs to the \.npy"),
    ("x.h5", raw(b"\x89HDF"), r"'\.h5'; expected a file, \.npz"),
    *[(f"x{suffix}", raw(b""), r"is empty \(0 bytes\)") for suffix in [*WRITABLE, ".plk"]],
    *[(f"x{suffix}", cut(suffix), r"(cut short|damaged|Fetch)") for suffix in WRITABLE],
    *[(f"x{suffix}", raw(b"<!DOCTYPE html>"), r"begins with b'<!DOCTYP'") for suffix in [*WRITABLE, ".plk"]],
    *[(f"x{suffix}", raw(b"version https://git-lfs.github.com/spec/v1"), r"Git LFS") for suffix in WRITABLE],
    *[(f"x{suffix}", raw(b"\x89HDF\r\n\x1a\n"), r"found an HDF5 file") for suffix in WRITABLE],
    ("x.npz", written(".parquet"), r"expected a NumPy archive.*found a Parquet table"),
    ("x.npz", written(".npy"), r"expected a NumPy archive.*found a NumPy array"),
    ("x.npy", written(".npz"), r"expected a NumPy array.*found a NumPy archive"),
    ("x.parquet", written(".safetensors"), r"expected a Parquet table.*found a safetensors file"),
    ("x.safetensors", written(".npz"), r"expected a safetensors file.*found a NumPy archive"),
    ("x.plk", written(".npz"), r"expected a pickled dict.*found a NumPy archive"),
    ("x.npz", flipped, r"(cut short or damaged|cannot be read)"),
    ("x.npz", npz(embeddings=X, labels=[0, 1, 0, 1]), r"the arrays `features`; found `embeddings`, `labels`"),
    ("x.npz", npz(), r"the arrays `features`; found nothing"),
    ("x.npz", npz(features=X[0]), r"x\.npz: features has shape \(3,\)"),
    ("x.npz", npz(features=NAN), r"x\.npz: features\[2, 1\] .*nan"),
    ("x.npz", npz(features=X, labels=[0, 1]), r"labels has shape \(2,\) and features has 4 rows"),
    ("x.npz", npz(features=X, labels=[0, 1, 9, 0], classes=["a", "b"]), r"labels\[2\] is 9.*0 to 1"),
    ("x.npz", npz(features=X, labels=np.array([1, "a", 2, 3], dtype=object)), r"`labels`.*astype\(str\)"),
    ("x.npz", npz(features=X, about="{"), r"`about` must be JSON"),
    ("x.npz", npz(features=X, about=X), r"`about` must be JSON"),
    ("x.npy", lambda p: np.save(p, np.array([None, 1], dtype=object)), r"holds 'object' values.*can run code"),
    ("x.npy", lambda p: np.save(p, np.zeros(3, dtype="f4,i4")), r"holds .*f0.* values; expected plain numbers"),
    ("x.npy", huge, r"claims shape \(400000000000, 3\) of float32, which is 4800000000000 bytes; found 48"),
    ("x.npy", npy_and("a,b\n1,2\n"), r"x\.csv: expected columns `label` and/or `file`.*`a`, `b`"),
    ("x.npy", npy_and(""), r"x\.csv: expected columns.*found nothing"),
    ("x.npy", npy_and("label\n1\n2\n"), r"x\.csv lies beside it and has 2 rows, and the array has 4"),
    ("x.npy", npy_and("label,file\na,1\nb,2,3\n"), r"x\.csv, line 3, has 3 cells"),
    ("x.npy", npy_and('label\n"a\nb\nc\n'), r"x\.csv, near line .* not CSV"),
    ("x.npy", npy_and(b"label\n\xff\n"), r"x\.csv cannot be read as a table of labels \(UTF-8 \.csv\)"),
    ("x.npy", npy_and('label,file\na,1\n"",2\nb,3\nb,4\n'), r"is empty"),
    ("x.npy", npy_and(about="[1]"), r"x\.about\.json must be a JSON object.*found list"),
    ("x.npy", npy_and(about="{"), r"x\.about\.json: the file must be JSON"),
    ("x.npy", npy_and("label\na\nb\nz\na\n", '{"classes": ["a", "b"]}'), r"labels\[2\] is 'z'"),
    ("x.safetensors", tensors(weight=X), r"expected a tensor `features`.*found `weight`"),
    ("x.safetensors", tensors(features=NAN), r"features\[2, 1\] .*nan"),
    ("x.safetensors", tensors({"classes": "a,b"}, features=X), r"`classes` must be JSON"),
    ("x.safetensors", tensors({"classes": '{"a": 1}'}, features=X), r"classes is .* sequence of text"),
    ("x.safetensors", bfloat16, r"stored as BF16; expected F16"),
    ("x.parquet", table(vectors=X.tolist()), r"expected a column `embedding`.*found `vectors`"),
    ("x.parquet", table(f0=[1.0], f2=[1.0]), r"without gaps; found `f0`, `f2`"),
    ("x.parquet", table(f0=[1.0, None], f1=[1.0, 2.0]), r"features\[1, 0\] .*nan"),
    ("x.parquet", table(embedding=[[1.0, 2.0], [1.0]]), r"ragged.*row 1 has 1 dimensions and that of row 0 has 2"),
    ("x.parquet", table(embedding=[[1.0], None]), r"row 1 has no vector"),
    ("x.parquet", table(embedding=[[1.0], [None]]), r"features\[1, 0\] .*nan"),
    ("x.parquet", table(embedding=[1.0, 2.0]), r"features has shape \(2,\)"),
    ("x.parquet", table(embedding=["a", "b"]), r"features holds 'object'"),
    ("x.parquet", table(embedding=[[], []]), r"features (has shape|holds)"),
    ("x.parquet", table(embedding=pa.array([], pa.list_(pa.float32()))), r"shape \(0, 0\)"),
    ("x.parquet", table(embedding=[[1.0], [2.0]], label=["a", None]), r"labels\[1\] is None"),
]


@pytest.mark.parametrize(
    ("name", "make", "message"), BAD_FILES, ids=[f"{i}-{n}" for i, (n, *_) in enumerate(BAD_FILES)]
)
def test_bad_files_say_what_was_expected_and_found(
    tmp_path: Path, name: str, make: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / name
    make(path)
    with pytest.raises(FeatureFileError, match=message) as caught:
        load(path)
    assert str(tmp_path) in str(caught.value)


def test_a_file_without_permission(tmp_path: Path, as_nobody: Callable[..., str]) -> None:
    path = tmp_path / "x.npz"
    save(SMALL, path)
    path.chmod(0)
    imports = "from a2lp.errors import FeatureFileError\nfrom a2lp.features import load"
    code = "try: load(sys.argv[1])\nexcept FeatureFileError as error: print(error)"
    assert f"{path} cannot be read: Permission denied. Check its permissions." in as_nobody(imports, code, path)


@pytest.mark.parametrize("name", ["cubb", "some/where", "x.unknown"])
def test_unknown_names_list_the_bundled_sets(name: str) -> None:
    with pytest.raises(UnknownNameError, match=rf"no such file: '{name}'.*There are: cifar_fs, cub, digits"):
        load(name)


@pytest.mark.parametrize("suffix", WRITABLE)
def test_every_cut_is_an_error_of_ours(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    save(FeatureSet(X, [0, 1, 0, 1]), path)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(FeatureFileError):
            load(path)


def test_a_long_label_takes_up_memory_once(tmp_path: Path) -> None:
    """As an array of text, each of them would take up 4 bytes for each letter of the longest: 8 GB here."""
    labels = ["x" * 1_000_000] + ["y"] * 1999
    columns = {"embedding": np.ones((2000, 1)).tolist(), "label": labels}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    tracemalloc.start()
    found = load(tmp_path / "x.parquet")
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()
    assert found.label_values == labels


def test_claimed_sizes_are_those_of_pyarrow(tmp_path: Path) -> None:
    columns = {f"f{i}": np.arange(50.0) for i in range(20)} | {"embedding": X[:1].tolist() * 50, "é": ["auk"] * 50}
    table = pa.table(columns).replace_schema_metadata({"a": "b" * 300})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=3)
    groups = [pq.read_metadata(tmp_path / "x.parquet").row_group(i) for i in range(17)]
    chunks = [group.column(j) for group in groups for j in range(group.num_columns)]
    for name in columns:
        mine = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] == name]
        expected = sum(max(chunk.total_uncompressed_size, 8 * chunk.num_values) for chunk in mine)
        assert claimed_bytes(tmp_path / "x.parquet", {name}) == expected > 0


FLIP = """
import sys
from pathlib import Path
from a2lp.errors import A2LPError
from a2lp.features import load
path = Path(sys.argv[1])
whole, outcomes = path.read_bytes(), {"read": 0, "refused": 0}
for bit in range(8 * (len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")), 8 * len(whole)):
    damaged = bytearray(whole)
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    try:
        load(path)
        outcomes["read"] += 1
    except A2LPError:
        outcomes["refused"] += 1
print(*outcomes.values())
"""


def test_no_bit_of_a_parquet_footer_ends_the_process(tmp_path: Path) -> None:
    """The statistics of a column that contradict its type made pyarrow's description of the column abort."""
    pq.write_table(pa.table({"f0": [1.0, 2.0], "label": ["auk", "wren"]}), tmp_path / "x.parquet", store_schema=False)
    done = subprocess.run([sys.executable, "-c", FLIP, tmp_path / "x.parquet"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert min(map(int, done.stdout.split())) > 100


def test_parquet_bombs(tmp_path: Path) -> None:
    """A few kilobytes that stand for gigabytes: of one number and a count, and of one long text and a count."""
    zeros = pa.DictionaryArray.from_arrays(pa.array(np.zeros(150_000_000, np.int8)), pa.array([1.0]))
    pq.write_table(pa.table({"f0": zeros}), tmp_path / "numbers.parquet", store_schema=False)
    assert (tmp_path / "numbers.parquet").stat().st_size < 2 << 20
    with pytest.raises(
        FeatureFileError, match=r"numbers\.parquet: the file has \d+ bytes and claims 1200000\d\d\d unp"
    ):
        load(tmp_path / "numbers.parquet")
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int8)), pa.array(["x" * 1_000_000]))
    columns = {"f0": np.ones(20_000), "label": names}
    pq.write_table(pa.table(columns), tmp_path / "texts.parquet", store_schema=False)
    assert (tmp_path / "texts.parquet").stat().st_size < 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert load(tmp_path / "texts.parquet").n_classes == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000  # kilobytes; they are 20 GB of text

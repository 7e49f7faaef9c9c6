""".parquet: a column of vectors, or one column for each dimension; ``label`` and ``file`` beside it."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.arrays import NDArray
from a2lp.checks import listed
from a2lp.errors import InputError, import_extra
from a2lp.features.feature_set import FeatureSet
from a2lp.features.numpy_files import Fields, classes_and_about
from a2lp.features.parquet_footer import claimed_bytes
from a2lp.files import parse_json, replacing
from a2lp.npz import check_growth


def read_parquet(path: Path) -> Fields:
    """Read ``embedding``, ``features`` or f0, f1, ...; ``class_name`` or ``label``; ``file``, ``path`` or ``id``."""
    pyarrow, size = arrow("reading .parquet files"), path.stat().st_size
    names = list(pyarrow.parquet.read_schema(path).names)
    vectors = _first_of(names, "embedding", "features")
    label = _first_of(names, "class_name", "label")
    source = _first_of(names, "file", "path", "id")
    dimensions = [vectors] if vectors else _dimensions(names)
    texts = [name for name in (label, source) if name]
    # text stays dictionary-encoded, as it is in most files: a long text that a million rows share is in memory once
    with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
        check_growth(claimed_bytes(path, {*dimensions, *texts}), size)
        table = file.read(columns=[*dimensions, *texts])
    columns = [table[name] for name in dimensions]
    features = _vectors(columns[0]) if vectors else np.column_stack([column.to_numpy() for column in columns])
    fields: Fields = {"features": features} | ({"labels": _values(table[label])} if label else {})
    if source:  # ids are often numbers
        fields["files"] = [str(key) if isinstance(key, int) else key for key in _values(table[source])]
    known = parse_json((table.schema.metadata or {}).get(b"a2lp", b"{}"), "the metadata `a2lp`")
    fields |= classes_and_about(known, "the metadata `a2lp`")
    return fields if known.get("text") is None else fields | {"text": _unpacked(known["text"])}


def write_parquet(features: FeatureSet, path: Path) -> None:
    """Write ``embedding``, ``label`` (the class name where there is one) and ``file``."""
    pyarrow = arrow("writing .parquet files")
    flat, width = pyarrow.array(features.features.reshape(-1)), features.features.shape[1]
    columns = {"embedding": pyarrow.FixedSizeListArray.from_arrays(flat, width)}
    for name, values in (("label", features.label_values), ("file", features.files)):
        columns |= {} if values is None else {name: pyarrow.array(values)}
    text = None if features.text is None else _packed(features.text)
    known = json.dumps({"classes": features.classes, "about": features.about, "text": text})
    table = pyarrow.table(columns).replace_schema_metadata({"a2lp": known})
    with replacing(path) as temporary:
        pyarrow.parquet.write_table(table, temporary, use_dictionary=["label"])


def _packed(text: NDArray) -> dict[str, Any]:
    """Vectors of names as JSON, bit for bit: a table has no other place for rows that are not points."""
    little = text.astype(text.dtype.newbyteorder("<"))
    return {"dtype": little.dtype.str, "shape": text.shape, "base64": base64.b64encode(little.tobytes()).decode()}


def _unpacked(packed: Any) -> NDArray:
    try:
        if packed["dtype"] not in ("<f2", "<f4", "<f8"):
            raise ValueError(f"its dtype is {packed['dtype']!r}")
        values = np.frombuffer(base64.b64decode(packed["base64"], validate=True), packed["dtype"])
        return values.reshape(packed["shape"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"`text` in the metadata `a2lp` cannot be read ({error}). Write the file again.") from error


def _first_of(names: list[str], *wanted: str) -> str | None:
    return next((name for name in wanted if name in names), None)


def _dimensions(names: list[str]) -> list[str]:
    found = [name for name in names if re.fullmatch(r"f\d{1,9}", name)]
    dimensions = [f"f{i}" for i in range(len(found))]
    if not found or sorted(found) != sorted(dimensions):
        raise InputError(
            "expected a column `embedding` (or `features`) of lists of numbers, or one column for each dimension, f0, "
            f"f1, ... without gaps; found {listed(names)}."
        )
    return dimensions


def _values(column: Any) -> list[Any]:
    """The values of a column as Python objects, the same object for equal values of a dictionary."""
    values: list[Any] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            known = [*chunk.dictionary.to_pylist(), None]  # the last for rows without a value
            values += [known[-1 if i is None else i] for i in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values


def _vectors(column: Any) -> NDArray:
    """A column of lists that have one length, as (N, d); of anything else, as (N,)."""
    pyarrow = arrow("reading .parquet files")
    kinds = pyarrow.types
    if not any(is_list(column.type) for is_list in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)):
        return np.asarray(column.to_numpy())
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise InputError(f"row {row} has no vector; every row needs one. Drop that row.")
    lengths = pyarrow.compute.list_value_length(column).to_numpy()
    wrong = np.flatnonzero(lengths != lengths[:1])
    if wrong.size:
        sizes = f"that of row {wrong[0]} has {lengths[wrong[0]]} dimensions and that of row 0 has {lengths[0]}"
        raise InputError(f"the vectors are ragged: {sizes}; all must have the same.")
    if not len(lengths):
        return np.empty((0, 0))
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return np.concatenate(parts).reshape(len(lengths), int(lengths[0]))


def arrow(what: str) -> Any:
    """The package ``pyarrow``, which ``what`` needs."""
    return import_extra(what, "label", "pyarrow", "compute", "parquet")

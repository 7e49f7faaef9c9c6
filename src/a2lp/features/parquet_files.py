""".parquet: a column of vectors, or one column for each dimension; ``label`` and ``file`` beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.errors import InputError, MissingExtraError
from a2lp.features.common import Fields, known_from_json, label_values, listed, replacing
from a2lp.features.sets import FeatureSet


def read_parquet(path: Path) -> Fields:
    """Read ``embedding``, ``features`` or f0, f1, ...; ``class_name`` or ``label``; ``file``, ``path`` or ``id``."""
    with _pyarrow("reading").parquet.ParquetFile(path) as file:
        names = list(file.schema_arrow.names)
        vectors = _first_of(names, "embedding", "features")
        label = _first_of(names, "class_name", "label")
        source = _first_of(names, "file", "path", "id")
        dimensions = [vectors] if vectors else _dimensions(names)
        table = file.read(columns=[*dimensions, *filter(None, (label, source))])
    if vectors:
        fields: Fields = {"features": _vectors(table[vectors])}
    else:
        fields = {"features": np.column_stack([table[name].to_numpy() for name in dimensions])}
    fields |= {"labels": table[label].to_pylist()} if label else {}
    if source:
        keys = table[source].to_pylist()
        fields["files"] = [str(key) if isinstance(key, int) else key for key in keys]  # as ids often are
    known = (table.schema.metadata or {}).get(b"a2lp", b"{}")
    return fields | known_from_json("the metadata `a2lp`", known)


def write_parquet(features: FeatureSet, path: Path) -> None:
    """Write ``embedding``, ``label`` (the class name where there is one) and ``file``."""
    pyarrow = _pyarrow("writing")
    flat, width = pyarrow.array(features.features.reshape(-1)), features.features.shape[1]
    columns = {"embedding": pyarrow.FixedSizeListArray.from_arrays(flat, width)}
    for name, values in (("label", label_values(features)), ("file", features.files)):
        columns |= {} if values is None else {name: pyarrow.array(values)}
    known = json.dumps({"classes": features.classes, "about": features.about})
    table = pyarrow.table(columns).replace_schema_metadata({"a2lp": known})
    with replacing(path) as temporary:
        pyarrow.parquet.write_table(table, temporary, use_dictionary=["label"])


def _first_of(names: list[str], *wanted: str) -> str | None:
    return next((name for name in wanted if name in names), None)


def _dimensions(names: list[str]) -> list[str]:
    found = sorted((name for name in names if re.fullmatch(r"f\d+", name)), key=lambda name: int(name[1:]))
    if not found or found != [f"f{i}" for i in range(len(found))]:
        raise InputError(
            "expected a column `embedding` (or `features`) of lists of numbers, or one column for each "
            f"dimension, f0, f1, ... without gaps; found {listed(names)}."
        )
    return found


def _vectors(column: Any) -> np.ndarray[Any, Any]:
    """A column of lists that have one length, as (N, d); of anything else, as (N,)."""
    pyarrow = _pyarrow("reading")
    kinds = pyarrow.types
    if not any(is_list(column.type) for is_list in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)):
        return np.asarray(column.to_numpy())
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise InputError(f"row {row} has no vector; every row needs one. Drop that row.")
    lengths = pyarrow.compute.list_value_length(column).to_numpy()
    wrong = np.flatnonzero(lengths != lengths[:1])
    if wrong.size:
        row = int(wrong[0])
        raise InputError(
            f"the vectors are ragged: that of row {row} has {lengths[row]} dimensions and that of row 0 has "
            f"{lengths[0]}; all must have the same."
        )
    if not len(lengths):
        return np.empty((0, 0))
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return np.concatenate(parts).reshape(len(lengths), int(lengths[0]))


def _pyarrow(doing: str) -> Any:
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(f"{doing} .parquet files", "pyarrow", "label") from error
    return pyarrow

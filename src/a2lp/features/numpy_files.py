"""NumPy's files: .npz archives, and .npy arrays with a .csv of labels beside them."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from a2lp import npz
from a2lp.checks import counted, listed
from a2lp.errors import InputError
from a2lp.features.feature_set import FeatureSet
from a2lp.files import parse_json, read_json, read_text, replacing, write_text

Fields = dict[str, Any]  # arguments of FeatureSet

TEXT_END = ".text.npy"  # of the file of text vectors beside x.npy
_MAPPED = 64 << 20  # bytes of an .npy file from which it is memory-mapped


def read_npz(path: Path) -> Fields:
    """Read ``features`` and, if present, ``labels``, ``classes``, ``text``, ``files`` and ``about`` (JSON)."""
    optional = ["labels", "classes", "files", "about", "text"]
    fields: Fields = npz.read(path, "a feature file (.npz)", ["features"], optional)
    if "about" in fields:
        fields["about"] = parse_json(fields["about"].tolist(), "`about`")
    return fields


def write_npz(features: FeatureSet, path: Path) -> None:
    """Write the archive that ``read_npz`` reads."""
    arrays: Fields = {"features": features.features, "about": np.array(json.dumps(features.about))}
    for key in ("labels", "classes", "files", "text"):
        value = getattr(features, key)
        arrays |= {} if value is None else {key: np.asarray(value)}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_npy(path: Path) -> Fields:
    """Read x.npy (memory-mapped if it is large), labels and files of x.csv, class names of x.about.json, x.text.npy."""
    fields: Fields = {"features": npz.read_npy(path, "a NumPy array (.npy)", _MAPPED)}
    table, about, text = (path.with_suffix(end) for end in (".csv", ".about.json", TEXT_END))
    if table.exists():
        fields |= _read_csv(table, len(np.atleast_1d(fields["features"])))
    if about.exists():
        fields |= classes_and_about(read_json(about, "class names and a description (JSON)"), about.name)
    if text.exists():
        fields["text"] = npz.read_npy(text, "text vectors (.npy)", _MAPPED)
    labels = fields.get("labels", [])
    if "classes" not in fields and labels and all(re.fullmatch("0|[1-9][0-9]{0,17}", label) for label in labels):
        fields["labels"] = [int(label) for label in labels]
    return fields


def write_npy(features: FeatureSet, path: Path) -> None:
    """Write x.npy after the files beside it; one that would be empty is removed."""
    side = path.with_suffix(TEXT_END)
    if features.text is None:
        side.unlink(missing_ok=True)
    else:
        _write_array(features.text, side)
    for side, text in npy_side_files(features, path).items():
        if text:
            write_text(side, text)
        else:
            side.unlink(missing_ok=True)
    _write_array(features.features, path)


def _write_array(array: Any, path: Path) -> None:
    with replacing(path) as temporary, temporary.open("wb") as binary:
        np.save(binary, array, allow_pickle=False)


def npy_side_files(features: FeatureSet, path: Path) -> dict[Path, str]:
    """The content of x.csv and x.about.json; empty if there is nothing to write."""
    columns = {"label": features.label_values, "file": features.files}
    present = {name: column for name, column in columns.items() if column is not None}
    table = io.StringIO()
    if present:
        writer = csv.writer(table)
        writer.writerow(present)
        writer.writerows(zip(*present.values(), strict=True))
    known = {"classes": features.classes, "about": features.about}
    about = json.dumps(known, indent=1) if features.classes is not None or features.about else ""
    return {path.with_suffix(".csv"): table.getvalue(), path.with_suffix(".about.json"): about}


def classes_and_about(values: Any, what: str) -> Fields:
    """``classes`` and ``about`` of a JSON object, if it has them."""
    if not isinstance(values, dict):
        raise InputError(f"{what} must be a JSON object with `classes` and `about`, found {type(values).__name__}.")
    return {key: values[key] for key in ("classes", "about") if values.get(key) is not None}


def _read_csv(path: Path, n: int) -> Fields:
    reader = csv.reader(io.StringIO(read_text(path, "a table of labels (UTF-8 .csv)"), newline=""), strict=True)
    try:
        header, *rows = [(reader.line_num, row) for row in reader if row] or [(0, [])]
    except csv.Error as error:
        raise InputError(f"{path.name}, near line {reader.line_num + 1}, is not CSV ({error}). Correct it.") from error
    names = [name.strip() for name in header[1]]
    for line, row in rows:
        if len(row) != len(names):
            counts = f"{len(row)} cells and the first line {len(names)}; all need the same"
            raise InputError(f"{path.name}, line {line}, has {counts}. Put text that has commas in quotes.")
    columns = {"labels": "label", "files": "file"}
    found = {key: names.index(column) for key, column in columns.items() if column in names}
    if not found:
        raise InputError(f"{path.name}: expected columns `label` and/or `file` in line 1; found {listed(names)}.")
    if len(rows) != n:
        raise InputError(
            f"{path.name} lies beside it and has {counted(len(rows), 'row')}, and the array has {n}; a .csv of that "
            "name holds the labels of all rows, or their files. Correct it, or rename it if it is something else."
        )
    return {key: [row[i] for _, row in rows] for key, i in found.items()}

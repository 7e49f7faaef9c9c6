"""NumPy's own files: .npz archives, and .npy arrays with a .csv of labels beside them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Literal

import numpy as np

from a2lp.errors import InputError
from a2lp.features.common import Fields, from_json, known_from_json, label_values, listed, replacing
from a2lp.features.sets import FeatureSet

_MAPPED = 64 << 20  # bytes of a .npy file from which it is read where it is used


def read_npz(path: Path) -> Fields:
    """Read ``features`` and, where they are, ``labels``, ``classes``, ``files`` and ``about`` (JSON)."""
    fields: Fields = {}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        if "features" not in archive:
            raise InputError(f"expected an array `features` (N, d); found {listed(archive.files)}.")
        for key in ("features", "labels", "classes", "files", "about"):
            try:
                fields |= {key: archive[key]} if key in archive else {}
            except ValueError as error:
                raise InputError(
                    f"the array `{key}` cannot be read ({error}). Save it as plain numbers or text: "
                    ".astype(float), .astype(int), .astype(str)."
                ) from error
    if "about" in fields:
        fields["about"] = from_json("`about`", fields["about"].tolist())
    return fields


def write_npz(features: FeatureSet, path: Path) -> None:
    """Write the archive that ``read_npz`` reads."""
    arrays: Fields = {"features": features.features, "about": np.array(json.dumps(features.about))}
    for key in ("labels", "classes", "files"):
        value = getattr(features, key)
        arrays |= {} if value is None else {key: np.asarray(value)}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_npy(path: Path) -> Fields:
    """Read x.npy with the labels and files of x.csv and the class names of x.about.json, where these are.

    A large array stays in its file, as a memory map.
    """
    mapped: Literal["r"] | None = "r" if path.stat().st_size > _MAPPED else None
    fields: Fields = {"features": np.load(path, mmap_mode=mapped, allow_pickle=False)}
    table, about = path.with_suffix(".csv"), path.with_suffix(".about.json")
    if table.exists():
        fields |= _read_csv(table)
    if about.exists():
        fields |= known_from_json(about.name, about.read_bytes())
    labels = fields.get("labels", [])
    if "classes" not in fields and labels and all(_is_number(label) for label in labels):
        fields["labels"] = [int(label) for label in labels]
    return fields


def write_npy(features: FeatureSet, path: Path) -> None:
    """Write x.npy, x.csv and x.about.json; one of the latter that would say nothing is not left there."""
    table, about = path.with_suffix(".csv"), path.with_suffix(".about.json")
    columns = {"label": label_values(features), "file": features.files}
    known = {name: column for name, column in columns.items() if column is not None}
    if known:
        with replacing(table) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(known)
            writer.writerows(zip(*known.values(), strict=True))
    else:
        table.unlink(missing_ok=True)
    if features.classes is not None or features.about:
        with replacing(about) as temporary:
            text = json.dumps({"classes": features.classes, "about": features.about}, indent=1)
            temporary.write_text(text, encoding="utf-8")
    else:
        about.unlink(missing_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as binary:
        np.save(binary, features.features, allow_pickle=False)


def _read_csv(path: Path) -> Fields:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header, *rows = [(reader.line_num, row) for row in reader if row] or [(0, [])]
        except (csv.Error, UnicodeDecodeError) as error:
            where = f"{path.name}, near line {reader.line_num + 1},"
            raise InputError(f"{where} is not UTF-8 CSV ({error}). Save it as such.") from error
    names = [name.strip() for name in header[1]]
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(
                f"{path.name}, line {line}, has {len(row)} cells and the first line {len(names)}; all lines "
                "need the same. Put text that has commas in quotes."
            )
    columns = {"labels": "label", "files": "file"}
    found = {key: names.index(column) for key, column in columns.items() if column in names}
    if not found:
        raise InputError(
            f"{path.name}: expected columns `label` and/or `file` in the first line; found {listed(names)}."
        )
    return {key: [row[i] for _, row in rows] for key, i in found.items()}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0") and len(text) < 19

""".safetensors: tensors ``features``, ``labels`` and ``text``; the rest as JSON in the metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from a2lp.checks import listed
from a2lp.errors import InputError, import_extra
from a2lp.features.feature_set import FeatureSet
from a2lp.features.numpy_files import Fields
from a2lp.files import parse_json, replacing

_NUMBERS = {"F16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "BOOL"}


def read_safetensors(path: Path) -> Fields:
    """Read ``features``, ``labels`` and ``text``, and ``classes``, ``files`` and ``about`` of the metadata."""
    fields: Fields = {}
    with _safetensors("reading").safe_open(path, framework="numpy") as file:
        names = list(file.keys())
        if "features" not in names:
            raise InputError(f"expected a tensor `features` (N, d); found {listed(names)}.")
        for key in {"features", "labels", "text"} & set(names):
            kind = file.get_slice(key).get_dtype()
            if kind not in _NUMBERS:  # bfloat16 and the 8-bit floats, which NumPy does not have
                expected = "F16, F32 or F64 (labels: I64)"
                raise InputError(f"`{key}` is stored as {kind}; expected {expected}. Convert it first.")
            fields[key] = file.get_tensor(key)
        known = file.metadata() or {}
    return fields | {key: parse_json(known[key], f"`{key}`") for key in ("classes", "files", "about") if key in known}


def write_safetensors(features: FeatureSet, path: Path) -> None:
    """Write the file that ``read_safetensors`` reads."""
    to_bytes = _safetensors("writing").numpy.save
    tensors = {"features": features.features}
    for key in ("labels", "text"):
        if getattr(features, key) is not None:
            tensors[key] = getattr(features, key)
    known = {"classes": features.classes, "files": features.files, "about": features.about}
    metadata = {key: json.dumps(value) for key, value in known.items() if value is not None}
    with replacing(path) as temporary:
        # not its save_file, which leaves a file that only its owner may read
        temporary.write_bytes(to_bytes(tensors, metadata=metadata))


def _safetensors(doing: str) -> Any:
    return import_extra(f"{doing} .safetensors files", "label", "safetensors", "numpy")

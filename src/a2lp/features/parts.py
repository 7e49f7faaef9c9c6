"""Folders of parts: vectors of many images on disk, as ``a2lp embed --out DIR`` writes them.

``plan.json`` says how many parts there are; ``part-00017.npy`` has the vectors of one, float16, and
``part-00017.parquet`` the name, the SHA-256 and the label of each. The table is written last and nothing is ever
changed, so a part is there, whole, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from a2lp import npz
from a2lp.arrays import NDArray
from a2lp.errors import FeatureFileError, InputError
from a2lp.features.parquet_files import arrow
from a2lp.files import exists, read_json, reading, replacing, writing

PLAN = "plan.json"
JOINED = "vectors.npy"
_VECTORS, _TABLE = "the vectors of a part (.npy)", "the table of a part (.parquet)"


def is_parts(path: str | Path) -> bool:
    """Whether a folder has parts."""
    return Path(path).is_dir() and exists(Path(path) / PLAN)


def part_path(folder: Path, number: int, suffix: str) -> Path:
    """The path of a file of a part."""
    return folder / f"part-{number:05d}{suffix}"


def has_part(folder: Path, number: int) -> bool:
    """Whether a part is finished."""
    return exists(part_path(folder, number, ".parquet"))


def write_part(
    folder: Path,
    number: int,
    vectors: NDArray,
    names: Sequence[str],
    digests: Sequence[str],
    labels: Sequence[int] | None,
    skipped: Mapping[str, str],
) -> None:
    """Write a part, its table last."""
    pyarrow = arrow("parts")
    with writing(folder), replacing(part_path(folder, number, ".npy")) as temporary, temporary.open("wb") as file:
        np.save(file, vectors.astype(np.float16, copy=False), allow_pickle=False)
    columns: dict[str, Any] = {"name": list(names), "sha256": list(digests)}
    columns |= {} if labels is None else {"label": pyarrow.array(labels, pyarrow.int64())}
    table = pyarrow.table(columns).replace_schema_metadata({"skipped": json.dumps(dict(skipped))})
    with writing(folder), replacing(part_path(folder, number, ".parquet")) as temporary:
        pyarrow.parquet.write_table(table, temporary)


def skipped_images(folder: Path) -> dict[str, str]:
    """The images of finished parts that could not be read, and why."""
    parquet = arrow("parts").parquet
    found: dict[str, str] = {}
    for path in sorted(folder.glob("part-*.parquet")):
        with reading(path, _TABLE):
            found |= json.loads((parquet.read_schema(path).metadata or {}).get(b"skipped", b"{}"))
    return found


def read_parts(folder: Path) -> dict[str, Any]:
    """The arguments of a FeatureSet. Vectors of several parts are joined once, on disk, and memory-mapped."""
    parquet = arrow("parts").parquet
    plan = read_plan(folder)
    missing = [number for number in range(plan["n_parts"]) if not has_part(folder, number)]
    if missing:
        raise FeatureFileError(
            f"{folder} has {plan['n_parts'] - len(missing)} of its {plan['n_parts']} parts. The `a2lp embed` command "
            "that began it makes the others."
        )
    names: list[str] = []
    labels: list[NDArray] = []
    for number in range(plan["n_parts"]):
        path = part_path(folder, number, ".parquet")
        with reading(path, _TABLE):
            table = parquet.read_table(path)
            names += table["name"].to_pylist()
            labels += [table["label"].to_numpy()] if "label" in table.column_names else []
    about = {name: plan[name] for name in ("source", "recipe", "versions")}
    fields: dict[str, Any] = {"features": _vectors(folder, plan, len(names)), "files": names, "about": about}
    if plan["classes"] is not None:
        fields |= {"classes": plan["classes"], "labels": np.concatenate(labels)}
    return fields


def read_plan(folder: Path) -> dict[str, Any]:
    """The plan of a folder of parts, checked."""
    plan = read_json(folder / PLAN, "the plan of a folder of parts (JSON)")
    needed = {"n_parts": int, "dim": int, "source": str, "recipe": dict, "versions": dict, "classes": list | None}
    for name, kind in needed.items():
        if not isinstance(plan, dict) or not isinstance(plan.get(name, ...), kind):
            raise FeatureFileError(
                f"{folder / PLAN}: its {name} is missing or of another kind. Embed the images again."
            )
    return dict(plan)


def _vectors(folder: Path, plan: Mapping[str, Any], n: int) -> NDArray:
    parts = [part_path(folder, number, ".npy") for number in range(plan["n_parts"])]
    joined = parts[0] if len(parts) == 1 else folder / JOINED
    if not exists(joined):
        with writing(joined), replacing(joined) as temporary:
            whole = np.lib.format.open_memmap(temporary, "w+", np.float16, (n, plan["dim"]))
            done = 0
            for path in parts:
                with reading(path, _VECTORS):
                    part = np.load(path, mmap_mode="r", allow_pickle=False)
                    whole[done : done + len(part)] = part
                done += len(part)
            if done != n:
                raise InputError(f"{folder} has {done} vectors for {n} names. Embed the images again.")
            whole.flush()
            del whole
    vectors = npz.read_npy(joined, _VECTORS, 0)
    if vectors.shape != (n, plan["dim"]):
        raise FeatureFileError(f"{joined} has shape {vectors.shape}; expected ({n}, {plan['dim']}). Delete it.")
    return vectors

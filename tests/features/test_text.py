"""Vectors of class names in feature sets, their files, and in bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2lp
from a2lp.errors import InputError, ShapeError
from a2lp.features import FeatureSet, load, save

RNG = np.random.default_rng(0)
LABELS = np.repeat(np.arange(4), 12)
CENTRES = RNG.normal(size=(4, 8))
IMAGES = (2 + CENTRES[LABELS] + 0.3 * RNG.normal(size=(48, 8))).astype(np.float32)
NAMED = FeatureSet(IMAGES, LABELS, classes=list("abcd"), text=(2 + CENTRES).astype(np.float16), name="named")


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors", ".parquet"])
def test_every_format_keeps_text_bit_for_bit(tmp_path: Path, suffix: str) -> None:
    save(NAMED, tmp_path / f"x{suffix}")
    found = load(tmp_path / f"x{suffix}")
    assert found.text is not None and NAMED.text is not None
    assert (found.text.dtype, found.text.tobytes()) == (NAMED.text.dtype, NAMED.text.tobytes())
    save(FeatureSet(IMAGES, LABELS), tmp_path / f"x{suffix}", force=True)
    assert load(tmp_path / f"x{suffix}").text is None  # nothing of the earlier set is left


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no classes": ({"classes": None}, InputError, "there are no class names. Give classes"),
    "too few rows": ({"text": np.ones((3, 8))}, ShapeError, "text has 3 rows and there are 4 class names"),
    "another width": ({"text": np.ones((4, 9))}, ShapeError, "text has 9 dimensions and features has 8"),
    "not finite": ({"text": np.full((4, 8), np.inf)}, InputError, r"text\[0, 0\] \(row, column\) is inf"),
}


@pytest.mark.parametrize(("change", "kind", "message"), BAD.values(), ids=BAD)
def test_bad_text_is_refused(change: dict[str, Any], kind: type[Exception], message: str) -> None:
    given = {"features": IMAGES, "labels": LABELS, "classes": list("abcd"), "text": np.ones((4, 8))}
    with pytest.raises(kind, match=message):
        FeatureSet(**given | change)


def test_bench_gives_names_to_methods_that_use_them_and_lists_them_apart() -> None:
    found = a2lp.bench.compare(NAMED, ["zero_shot", "a2lp_em", "lp"], n_shot=1, n_way=3, n_query=5, n_tasks=4)
    assert {row["method"]: row["uses_names"] for row in found.rows} == {"zero_shot": True, "a2lp_em": True, "lp": False}
    titles = [section.title for section in found.table.sections]
    assert titles[:2] == ["accuracy, %, without base data or names", "accuracy, %, with names"]
    none = a2lp.bench.compare(NAMED, ["zero_shot"], n_shot=0, n_way=3, n_query=5, n_tasks=4)
    assert none.records[0].accuracy.mean > 90
    with pytest.raises(InputError, match=r"n_shot=0 needs class names, and features 'digits' have no `text`"):
        a2lp.bench.compare("digits", ["lp"], n_shot=0, n_tasks=2)


def test_saved_tasks_keep_their_classes(tmp_path: Path) -> None:
    tasks = a2lp.draw("k_eff", LABELS, seed=1, n_way=3, n_shot=0, n_query=4, n_tasks=5, k_eff=2)
    tasks.save(tmp_path / "tasks.npz")
    found = a2lp.TaskList.load(tmp_path / "tasks.npz")
    batch = found.batch(IMAGES, NAMED.text)
    assert (batch.n_support, batch.n_classes) == (0, 3)
    labels = a2lp.create("zero_shot").predict(batch).labels
    assert (labels == found.query_labels).mean() > 0.9

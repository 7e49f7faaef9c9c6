"""benchmarks/keep_network.py: what a run replaces, and what of the former one stays."""

from __future__ import annotations

import dataclasses
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from a2lp.features import BaseStatistics, load, load_base, save

ROOT = Path(__file__).parents[1]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, on folders of its own; two records of accuracies are there, of CUB and of another set."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = import_module("keep_network")
    folders = {"TRAINED": "trained", "TRIED": "trained/recipes", "RESULTS": "results", "BUNDLE": "data"}
    for name, folder in folders.items():
        monkeypatch.setattr(script, name, tmp_path / folder)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    for folder in ("trained", "results/records", "data"):
        (tmp_path / folder).mkdir(parents=True)
    for features in ("cub", "mini_resnet12_test"):
        record = json.dumps({"config": {"features": features}})
        (tmp_path / "results" / "records" / f"{features}.json").write_text(record)
    return script


def run_of(folder: Path, offset: float) -> Path:
    """A run of CUB's ResNet-12, with the rows of its novel classes in another order and other vectors."""
    folder.mkdir()
    config = {"name": folder.name, "dataset": "cub", "backbone": "resnet12"}
    (folder / "record.json").write_text(json.dumps({"config": config}))
    (folder / "log.jsonl").write_text("{}\n")
    (folder / "weights.safetensors").write_bytes(b"weights of " + folder.name.encode())
    cub, order = load("cub"), np.random.default_rng(0).permutation(2953)
    files = [cub.files[row] for row in order]
    about = {"dataset": "cub", "split": "test", "backbone": "resnet12", "trained": folder.name}
    moved = (cub.features[order].astype(np.float32) + offset).astype(np.float16)
    novel = dataclasses.replace(cub, features=moved, labels=cub.labels[order], files=tuple(files), about=about)
    save(novel, folder / "test.npz")
    for split in ("val", "train"):
        save(dataclasses.replace(novel, features=novel.features[:, :4]), folder / f"{split}.npz")
    base = load_base("cub")
    shifted = dataclasses.replace(base, mean=base.mean + np.float32(offset))
    shifted.save(folder / "train_base.npz")
    return folder


def test_a_run_becomes_the_network_and_the_former_record_stays(kept: Any, tmp_path: Path) -> None:
    former, new = run_of(tmp_path / "former", 0.0), run_of(tmp_path / "new", 0.25)
    kept.keep(former)
    out = tmp_path / "trained" / "cub_resnet12"
    names = {"record.json", "log.jsonl", "weights.safetensors"}
    names |= {f"cub_resnet12_{name}.npz" for name in ("val", "train", "train_base")}  # novel classes are bundled
    assert {path.name for path in out.iterdir()} == names
    assert not (tmp_path / "trained" / "recipes").exists()
    assert [path.stem for path in (tmp_path / "results" / "records").iterdir()] == ["mini_resnet12_test"]

    kept.keep(new)
    assert {path.name for path in out.iterdir()} == names
    assert json.loads((out / "record.json").read_text())["config"]["name"] == "new"
    [record] = (tmp_path / "trained" / "recipes").iterdir()
    assert json.loads(record.read_text())["config"]["name"] == "former"

    # the bundled set has the new vectors in the order of the former rows
    cub, made = load("cub"), load(tmp_path / "data" / "cub_resnet12_novel.npz")
    assert (made.files, made.classes) == (cub.files, cub.classes)
    np.testing.assert_array_equal(made.labels, cub.labels)
    np.testing.assert_array_equal(made.features, (cub.features.astype(np.float32) + 0.25).astype(np.float16))
    assert made.about["trained"] == "new"
    assert made.about["terms"] == cub.about["terms"]
    assert made.about["source"].startswith("a2lp train configs/new.json, then a2lp embed")
    bundled, whole = (
        BaseStatistics.load(path)
        for path in (tmp_path / "data" / "cub_resnet12_base.npz", out / "cub_resnet12_train_base.npz")
    )
    for name in ("mean", "within_cov", "sphere_cov", "count"):
        np.testing.assert_array_equal(getattr(bundled, name), getattr(whole, name))
    np.testing.assert_allclose(bundled.mean, load_base("cub").mean + 0.25, rtol=1e-6)


def test_a_run_without_all_splits_replaces_nothing(kept: Any, tmp_path: Path) -> None:
    kept.keep(run_of(tmp_path / "former", 0.0))
    before = sorted((tmp_path / "trained").rglob("*"))
    new = run_of(tmp_path / "new", 0.25)
    (new / "train_base.npz").unlink()
    with pytest.raises(SystemExit, match=r"neither cub_resnet12_train_base\.npz nor train_base\.npz"):
        kept.keep(new)
    assert sorted((tmp_path / "trained").rglob("*")) == before


def test_of_a_run_that_was_tried_the_record_alone_stays(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").write_text(json.dumps({"config": {"name": "cub_easy"}}))
    assert [str(kept.tried(tmp_path / "run")) for _ in range(2)] == [
        "trained/recipes/cub_easy-1.json",
        "trained/recipes/cub_easy-2.json",
    ]

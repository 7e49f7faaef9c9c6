from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from a2lp.features import bundled, load

ROOT = Path(__file__).resolve().parents[2]


def test_every_bundled_set_loads_under_its_name() -> None:
    assert set(bundled()) == {"cub", "cifar_fs", "digits"}
    for name, line in bundled().items():
        found = load(name)
        n, d = found.features.shape
        assert found.name == name
        assert f"{n} x {d}" in line
        assert found.classes is not None
        assert found.n_classes == len(found.classes)
        assert found.about["source"]


def test_cub_is_as_documented() -> None:
    cub = load("cub")
    assert cub.features.shape == (2953, 640)
    assert cub.features.dtype == np.float16
    assert cub.n_classes == 50
    assert cub.about["split"] == "novel"
    assert cub.files is not None
    assert cub.labels is not None
    # the folder of an image is its class
    assert [file.split("/")[0] for file in cub.files] == [cub.class_name(label) for label in cub.labels]
    notice = (files("a2lp.features") / "data" / "NOTICE").read_text()
    for needed in ("CUB-200-2011", "CNS-TR-2011-001", "non-commercial research", "No image"):
        assert needed in notice


def test_cifar_fs() -> None:
    cifar = load("cifar_fs")
    assert cifar.features.shape == (4000, 640)
    assert cifar.labels is not None
    assert np.bincount(cifar.labels).tolist() == [200] * 20
    assert cifar.about["split"] == "novel"
    notice = (files("a2lp.features") / "data" / "NOTICE").read_text()
    for needed in ("CIFAR-100", "Krizhevsky", "cifar_fs_resnet12_novel.npz"):
        assert needed in notice
    whole = load(ROOT / "trained" / "cifar_fs_resnet12" / "cifar_fs_resnet12_test.npz")
    first = [whole.files.index(file) for file in cifar.files[::500]]
    assert np.array_equal(cifar.features[::500], whole.features[first])


def test_digits_are_those_of_scikit_learn() -> None:
    digits, source = load("digits"), load_digits()
    assert digits.features.dtype == np.float32
    assert np.array_equal(digits.features, source.data)
    assert np.array_equal(digits.labels, source.target)


@pytest.mark.shared
def test_cub_has_the_order_of_saved_tasks(shared_data: Path) -> None:
    cub = load("cub")
    with np.load(shared_data / "features" / "cub_resnet12_test.npz") as source:
        assert tuple(source["files"].astype(str)) == cub.files
        names = source["classes"][source["labels"]]
    assert cub.labels is not None
    assert names.tolist() == [cub.class_name(label) for label in cub.labels]


@pytest.mark.parametrize("name", ["cub", "cifar_fs"])
def test_sets_say_how_they_were_made(name: str) -> None:
    about, run = load(name).about, f"{name}_resnet12"
    record = json.loads((ROOT / "trained" / run / "record.json").read_text())
    config = ROOT / "configs" / f"{about['trained']}.json"
    assert about["trained"] == json.loads(config.read_text())["name"] == record["config"]["name"]
    assert f"configs/{config.name}" in about["source"]
    view = (about["view"][name] for name in ("resize", "crop", "size"))
    assert "/".join(str(size) for size in view if size is not None) == record["view"]
    shards = sorted((ROOT / "trained" / run).glob("weights-*.safetensors"))
    digest = hashlib.sha256(b"".join(shard.read_bytes() for shard in shards)).hexdigest()
    assert about["weights"] == f"sha256:{digest}"

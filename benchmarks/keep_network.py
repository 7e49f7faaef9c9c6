"""Make a training run that has finished the network of its dataset and backbone, in ``trained/``.

    .venv/bin/python benchmarks/keep_network.py RUN           # its weights, features, statistics and record
    .venv/bin/python benchmarks/keep_network.py RUN --tried   # its record alone, as one that was not kept

RUN is a folder that ``python -m a2lp.images.training`` wrote. The record of the network that was there before moves to
``trained/recipes``, the bundled sets are made anew if they are of this network, and records of accuracies on its former
features are deleted. Then commit, so that new records have a clean commit, and run `make tables`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from networks import RESULTS, TRAINED, TRIED, network_of
from study import ROOT

from a2lp.bench.published import feature_source
from a2lp.features import BaseStatistics, load, save
from a2lp.features.bundled import BUNDLED

BUNDLE = ROOT / "src" / "a2lp" / "features" / "data"
SPLITS = ("train_base", "train", "val", "test")
MOST_WEIGHTS = 32 << 20  # bytes of weights that are kept: a ResNet-12 in float16, not a WideResNet
MOST_BASE = 16 << 20  # bytes of base classes' features that are kept, for meta-training: CUB's


def keep(run: Path) -> None:
    """Copy the files of a run to its network's folder, and remove what they replace."""
    config = json.loads((run / "record.json").read_text(encoding="utf-8"))["config"]
    network = network_of(config)
    out = TRAINED / network
    files = {name: run / name for name in ("record.json", "log.jsonl")}
    weights = sorted(run.glob("weights*.safetensors"))
    if sum(file.stat().st_size for file in weights) <= MOST_WEIGHTS:
        files |= {file.name: file for file in weights}
    else:
        print(f"{network}: its weights are larger than {MOST_WEIGHTS >> 20} MiB and are not kept")
    for split in SPLITS:
        names = (f"{network}_{split}.npz", f"{split}.npz")
        file = next((run / name for name in names if (run / name).exists()), None)
        if file is None and split != "train":
            raise SystemExit(f"{run} has neither {' nor '.join(names)}. Embed this split with the run's weights first.")
        if file is not None and (split != "train" or file.stat().st_size <= MOST_BASE):
            files[f"{network}_{split}.npz"] = file
    if out.exists():
        print(f"{network}: the record of the former run is now {tried(out)}")
        shutil.rmtree(out)
    out.mkdir()
    for name, file in files.items():
        shutil.copyfile(file, out / name)

    source = feature_source(f"{network}_test")
    assert source is not None
    sets = {f"{source.dataset}_{source.backbone}_test"}
    for name in (name for name in BUNDLED if feature_source(name) == source):
        sets.add(name)
        if bundle(name, out, network):
            (out / f"{network}_test.npz").unlink()
    stale = [path for path in (RESULTS / "records").glob("*.json") if _features(path) in sets]
    for path in stale:
        path.unlink()
    print(f"{network}: kept, from {run}; {len(stale)} records of the former features are deleted")


def bundle(name: str, folder: Path, network: str) -> bool:
    """Make a bundled set of a network's features of novel classes; whether it has all of them.

    Rows are those of the former set: saved task lists refer to their order.
    """
    former, new = load(name), load(folder / f"{network}_test.npz")
    assert former.files is not None and new.files is not None
    rows = {file: row for row, file in enumerate(new.files)}
    vectors = new.features[[rows[file] for file in former.files]]
    own = {key: former.about[key] for key in ("dataset", "split", "terms")}
    own["source"] = former.about["source"].replace(*(f"configs/{each.about['trained']}.json" for each in (former, new)))
    about = new.about | own | {"images": len(former)}
    kept = dataclasses.replace(former, features=vectors, about=about)
    save(kept, BUNDLE / f"{name}_resnet12_novel.npz", force=True)
    statistics = BaseStatistics.load(folder / f"{network}_train_base.npz")
    arrays: dict[str, Any] = {"mean": statistics.mean, "class_means": statistics.class_means.astype(np.float16)}
    arrays |= {"within_cov": np.triu(statistics.within_cov), "count": statistics.count}
    arrays |= {"sphere_cov": np.triu(statistics.sphere_cov)}
    np.savez_compressed(BUNDLE / f"{name}_resnet12_base.npz", **arrays)
    print(f"{name}: bundled features and base statistics are those of {network}")
    return len(former) == len(new)


def tried(run: Path) -> Path:
    """Keep the record of a run in ``trained/recipes``, numbered where there is one of its name."""
    name = json.loads((run / "record.json").read_text(encoding="utf-8"))["config"]["name"]
    TRIED.mkdir(exist_ok=True)
    number = 1 + len(list(TRIED.glob(f"{name}-*.json")))
    path = TRIED / f"{name}-{number}.json"
    shutil.copyfile(run / "record.json", path)
    return path.relative_to(ROOT)


def _features(record: Path) -> str:
    """The name of the features of a record of accuracies."""
    return str(json.loads(record.read_text(encoding="utf-8"))["config"]["features"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a run")
    parser.add_argument("--tried", action="store_true", help="keep its record alone")
    args = parser.parse_args()
    if args.tried:
        print(f"the record is now {tried(args.run)}")
    else:
        keep(args.run)


if __name__ == "__main__":
    main()

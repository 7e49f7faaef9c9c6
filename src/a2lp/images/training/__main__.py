"""``python -m a2lp.images.training CONFIG --data DIR --out DIR``: train and embed all splits, without typer or rich."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from a2lp import cores
from a2lp.errors import A2LPError
from a2lp.features import load as load_features
from a2lp.files import exists
from a2lp.images.backbones.networks import torch_backbone
from a2lp.images.datasets import load
from a2lp.images.datasets.splits import SPLITS
from a2lp.images.embed import check_targets, embed
from a2lp.images.training.config import TrainConfig
from a2lp.images.training.loop import Report, train


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 2 for errors that the user can correct."""
    parser = argparse.ArgumentParser(prog="python -m a2lp.images.training", description="Train, then embed all splits.")
    parser.add_argument("config", help="a JSON file, as in configs/")
    parser.add_argument("--data", required=True, help="the folder of the dataset")
    parser.add_argument("--out", required=True, type=Path, help="the folder to write to; a killed run continues there")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, help="length of the schedule, instead of the configuration's")
    length.add_argument("--epochs", type=float, help="likewise, in epochs")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--workers", type=int, default=cores.count(), help="threads that decode images")
    parser.add_argument("--commit", metavar="HASH", help="the commit of the code, for the record")
    options = parser.parse_args(arguments)
    try:
        config = TrainConfig.read(options.config)
        if options.minutes is not None or options.epochs is not None:
            config = config.with_length(minutes=options.minutes, epochs=options.epochs)
        _run(config, options)
    except A2LPError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def _run(config: TrainConfig, options: argparse.Namespace) -> None:
    sets = {split: load(options.data, split, dataset=config.dataset) for split in SPLITS}
    ours = {split: _is_ours(options.out / f"{split}.npz", config.name) for split in SPLITS}
    machine = {"device": options.device, "workers": options.workers}
    result = train(config, sets["train"], sets["val"], options.out, **machine, commit=options.commit, progress=_print)
    chosen = result.record["views"][str(result.view)]
    _print_line(f"view {result.view}: {chosen['one']:.2f} / {chosen['five']:.2f} on validation classes")
    backbone = torch_backbone(config.backbone, result.weights)
    for split, images in sets.items():
        about = {"dataset": config.dataset, "split": split, "trained": config.name}
        out = options.out / f"{split}.npz"
        features = embed(images, backbone, out, **machine, batch_size=512, flip=True, about=about, force=ours[split])
        _print_line(f"{split}: {features!r}")


def _is_ours(path: Path, run: str) -> bool:
    """Whether a file has features of this run, which may be replaced; others may not."""
    ours = exists(path) and load_features(path).about.get("trained") == run
    if path.parent.is_dir():
        check_targets(path, labels=True, force=ours)
    return ours


def _print(report: Report) -> None:
    if report.note is not None:
        _print_line(report.note)
    if (found := report.evaluation) is not None:
        speed = f"{found.images / max(found.seconds, 0.01):.0f} images/s, lr {found.lr:.4f}"
        _print_line(f"{100 * report.done:3.0f} %, step {found.step}, {found}, {speed}")


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

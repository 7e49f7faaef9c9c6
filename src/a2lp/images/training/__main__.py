"""``python -m a2lp.images.training CONFIG --data DIR --out DIR``: train, then embed all splits; needs no terminal.

It prints a line for each look and wants neither typer nor rich, for machines where nothing can be installed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from a2lp.errors import A2LPError, InputError
from a2lp.features import load as load_features
from a2lp.images.backbones import create
from a2lp.images.datasets import load
from a2lp.images.embed import base_path, embed
from a2lp.images.training.config import TrainConfig
from a2lp.images.training.loop import Report, train

SPLITS = ("train", "val", "test")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 2 for what the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m a2lp.images.training", description="Train, then embed all splits.")
    parser.add_argument("config", help="a JSON file, as in configs/")
    parser.add_argument("--data", required=True, help="the folder of the dataset")
    parser.add_argument("--out", required=True, type=Path, help="the folder to write to; a killed run goes on there")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, help="length of the schedule, instead of the configuration's")
    length.add_argument("--epochs", type=float, help="likewise, in epochs")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="threads that decode images")
    options = parser.parse_args(arguments)
    try:
        config = TrainConfig.read(options.config)
        if options.minutes is not None or options.epochs is not None:
            config = config.lasting(minutes=options.minutes, epochs=options.epochs)
        _run(config, options)
    except A2LPError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def _run(config: TrainConfig, options: argparse.Namespace) -> None:
    sets = {split: load(options.data, split, dataset=config.dataset) for split in SPLITS}
    for split in SPLITS:
        _check_target(options.out / f"{split}.npz", config.name)
    machine = {"device": options.device, "workers": options.workers}
    result = train(config, sets["train"], sets["val"], options.out, **machine, progress=_say)
    chosen = result.record["views"][str(result.view)]
    _write(f"view {result.view}: {chosen['one']:.2f} / {chosen['five']:.2f} on validation classes")
    backbone = create(config.backbone, result.weights)
    for split, images in sets.items():
        about = {"dataset": config.dataset, "split": split, "trained": config.name}
        found = embed(
            images,
            backbone,
            options.out / f"{split}.npz",
            **machine,
            batch_size=512,
            flip=True,
            about=about,
            force=True,
        )
        _write(f"{split}: {found!r}")


def _check_target(path: Path, run: str) -> None:
    """Features that a run of this name made are made again, from the cache; others are not replaced."""
    ours = path.exists() and load_features(path).about.get("trained") == run
    for theirs in (path, base_path(path)):
        if theirs.exists() and not ours:
            raise InputError(
                f"{theirs} is not of the run {run!r} and would be replaced. Choose another folder, or move it."
            )


def _say(report: Report) -> None:
    if report.note is not None:
        _write(report.note)
    if report.look is not None:
        look = report.look
        seen = "" if look.one_shot is None else f"  {look.one_shot:.2f} / {look.five_shot:.2f} {look.batch_norm}"
        _write(
            f"{100 * report.done:3.0f} %  step {look.step}  epoch {look.epoch:.1f}  {look.seconds:.0f} s  "
            f"{look.images / max(look.seconds, 0.01):.0f} images/s  loss {look.loss:.3f}  lr {look.lr:.4f}{seen}"
            f"{'  best' if look.best else ''}"
        )


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""``a2lp convert``: from one format of feature files to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from a2lp.cli.options import option

SOURCE_HELP = (
    "A feature file (.npz, .npy with its .csv, .safetensors, .parquet, or a pickle of {class: vectors}: .plk, .pkl, "
    ".pickle), or the name of a bundled set: cub, cifar_fs, digits."
)
TARGET_HELP = "The file to write; its extension is its format: .npz, .npy, .safetensors or .parquet."


def convert(
    source: Annotated[str, typer.Argument(help=SOURCE_HELP, metavar="SOURCE")],
    target: Annotated[Path, typer.Argument(help=TARGET_HELP, metavar="TARGET")],
    force: Annotated[bool, option("Replace the target if it exists.", None, "--force")] = False,
) -> None:
    """Convert a feature file to another format, without losing or rounding anything."""
    from a2lp.features import load, save

    features = load(source)
    save(features, target, force=force)
    n, d = features.features.shape
    classes = "no labels" if features.labels is None else f"{features.n_classes} classes"
    typer.echo(f"{source}: {n} vectors of {d} dimensions ({features.features.dtype}), {classes} -> {target}")

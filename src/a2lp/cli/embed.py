"""``a2lp embed``: images to a feature file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a2lp.cli.progress import bar_on_stderr
from a2lp.errors import CorruptImageError, InputError

if TYPE_CHECKING:
    from a2lp.images.embed import Progress


def embed(
    source: Annotated[
        str,
        typer.Argument(help="A folder of images with a folder for each class, a dataset's folder, or a pack (.npz)."),
    ],
    backbone: Annotated[
        str, typer.Option(help="resnet12, resnet12_512, wrn28_10, efficientnet_lite0 or timm:NAME.", metavar="NAME")
    ] = "efficientnet_lite0",
    weights: Annotated[
        Path | None, typer.Option(help="The backbone's weights: .safetensors, .pth.tar or .tar.", metavar="FILE")
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            help="What the backbone sees, in pixels: shorter side, centre crop, and what that is resized to; the "
            "backbone's own if not given.",
            metavar="RESIZE/CROP[/SIZE]",
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Which dataset SOURCE is, where its layout does not tell.", metavar="NAME")
    ] = None,
    split: Annotated[str | None, typer.Option(help="train, val or test, where there are such.", metavar="NAME")] = None,
    out: Annotated[Path, typer.Option(help="The feature file to write (.npz, float16).", metavar="FILE")] = Path(
        "features.npz"
    ),
    flip: Annotated[bool, typer.Option(help="Average over each image and its mirror image.")] = False,
    on_corrupt: Annotated[
        str, typer.Option(help="What becomes of images that cannot be read.", metavar="refuse|skip")
    ] = "refuse",
    device: Annotated[str, typer.Option(help="auto (CUDA where there is some), cpu, cuda, cuda:1, ...")] = "auto",
    batch_size: Annotated[int, typer.Option(help="Images that are read at a time.")] = 64,
    workers: Annotated[
        int | None, typer.Option(help="Threads that decode images.", show_default="one for each core")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Where vectors are kept, so that nothing is embedded twice; else where A2LP_CACHE says, else the "
            "user's cache folder.",
            metavar="DIR",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE where it exists.")] = False,
) -> None:
    """Embed images with a backbone, and write them as a feature file.

    Vectors are kept in a cache while it runs: a run that was stopped or killed goes on where it was when it is started
    again, and an image that is known costs nothing. With labels, base statistics (mean, class means, covariance within
    classes) are written beside the file, as NAME_base.npz.
    """
    from a2lp.images import View
    from a2lp.images.backbones import create
    from a2lp.images.datasets import load
    from a2lp.images.embed import base_path
    from a2lp.images.embed import embed as embed_images

    images = load(source, split, dataset=dataset)
    network = create(backbone, weights, view=None if view is None else View.parse(view))
    about: dict[str, Any] = {"source": Path(source).name, "set": images.name}
    about |= {name: value for name, value in (("dataset", dataset), ("split", split)) if value is not None}
    try:
        with _progress_bar() as progress:
            features = embed_images(
                images,
                network,
                out,
                device=device,
                batch_size=batch_size,
                workers=(os.cpu_count() or 1) if workers is None else workers,
                on_corrupt=on_corrupt,  # type: ignore[arg-type]  # checked there
                flip=flip,
                cache=cache,
                about=about,
                force=force,
                progress=progress,
            )
    except CorruptImageError as error:
        raise InputError(f"{error} On the command line: --on-corrupt skip.") from error
    except KeyboardInterrupt:
        typer.echo("interrupted: what is embedded is kept; the same command goes on from there.", err=True)
        raise typer.Exit(130) from None
    skipped = features.about["skipped"]
    for file in skipped:
        typer.echo(f"skipped, since it cannot be read: {file}", err=True)
    for label, name in enumerate(images.classes or ()):
        if features.labels is not None and label not in features.labels:
            typer.echo(f"note: no image of the class {name!r} could be read; the file has none of it.", err=True)
    n, d = features.features.shape
    typer.echo(f"{source}: {n} vectors of {d} dimensions ({network.name}), {len(skipped)} images skipped -> {out}")
    if features.labels is not None:
        typer.echo(f"base statistics of {features.n_classes} classes -> {base_path(out)}")


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """A bar on stderr, and a line on how many images are to be embedded."""
    with bar_on_stderr() as (console, bar, task):
        looked_up = 0

        def report(what: str, done: int, total: int) -> None:
            nonlocal looked_up
            if what == "looking up":
                looked_up = total
            elif done == 0:
                console.print(f"{looked_up} images, {total} of them not in the cache", soft_wrap=True)
            if done == 0:
                bar.reset(task, total=total, description=what)
            bar.update(task, completed=done)

        yield report

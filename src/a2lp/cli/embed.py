"""``a2lp embed``: images to a feature file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a2lp import cores
from a2lp.cli.progress import bar_on_stderr
from a2lp.errors import CorruptImageError, InputError

if TYPE_CHECKING:
    from a2lp.features import FeatureSet
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
            help="The part of an image to embed, in pixels: shorter side, centre crop, and the size that this is "
            "resized to; the backbone's default if not given.",
            metavar="RESIZE/CROP[/SIZE]",
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="The dataset, where its splits are not clear from its layout.", metavar="NAME")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="train, val or test, for datasets with splits.", metavar="NAME")
    ] = None,
    out: Annotated[Path, typer.Option(help="The feature file to write (.npz, float16).", metavar="FILE")] = Path(
        "features.npz"
    ),
    flip: Annotated[
        bool,
        typer.Option(
            "--flip/--no-flip",
            help="Average over each image and its mirror image, as classify does: better features, twice the time.",
        ),
    ] = True,
    on_corrupt: Annotated[
        str, typer.Option(help="What to do with images that cannot be read.", metavar="refuse|skip")
    ] = "refuse",
    device: Annotated[str, typer.Option(help="auto (CUDA if available), cpu, cuda, cuda:1, ...")] = "auto",
    batch_size: Annotated[int, typer.Option(help="Images that are read at a time.")] = 64,
    workers: Annotated[
        int | None, typer.Option(help="Threads that decode images.", show_default="one for each core")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Where vectors are kept, so that nothing is embedded twice; by default the folder A2LP_CACHE, or the "
            "user's cache folder.",
            metavar="DIR",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Embed images with a backbone, and write them as a feature file.

    Vectors are kept in a cache: a run that was stopped or killed continues when it is started again, and no image is
    embedded twice. With labels, base statistics (mean, class means, covariance within classes) are written beside the
    file, as NAME_base.npz.
    """
    from a2lp.images import View
    from a2lp.images.backbones import create
    from a2lp.images.datasets import load
    from a2lp.images.embed import base_path
    from a2lp.images.embed import embed as embed_to_file

    images = load(source, split, dataset=dataset)
    network = create(backbone, weights, view=None if view is None else View.parse(view))
    about: dict[str, Any] = {"source": Path(source).name, "set": images.name}
    about |= {name: value for name, value in (("dataset", dataset), ("split", split)) if value is not None}
    try:
        with _progress_bar() as progress:
            features = embed_to_file(
                images,
                network,
                out,
                device=device,
                batch_size=batch_size,
                workers=cores.count() if workers is None else workers,
                on_corrupt=on_corrupt,
                flip=flip,
                cache=cache,
                about=about,
                force=force,
                progress=progress,
            )
    except CorruptImageError as error:
        raise InputError(f"{error} On the command line: --on-corrupt skip.") from error
    except KeyboardInterrupt:
        typer.echo("interrupted: finished vectors are kept, and the same command continues from there.", err=True)
        raise typer.Exit(130) from None
    _print_skipped(features)
    n, d = features.features.shape
    skipped = len(features.about["skipped"])
    typer.echo(f"{source}: {n} vectors of {d} dimensions ({network.name}), {skipped} images skipped -> {out}")
    if features.labels is not None:
        typer.echo(f"base statistics of {features.n_classes} classes -> {base_path(out)}")


def _print_skipped(features: FeatureSet) -> None:
    """Name the images that were skipped, and the classes of which none is left."""
    for file in features.about["skipped"]:
        typer.echo(f"skipped, since it cannot be read: {file}", err=True)
    for label, name in enumerate(features.classes or ()):
        if features.labels is not None and label not in features.labels:
            typer.echo(f"note: no image of the class {name!r} could be read; the file has none of it.", err=True)


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

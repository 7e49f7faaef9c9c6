"""``a2lp embed``: images to a feature file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a2lp.cli.interrupts import interruptible
from a2lp.cli.options import Scheduler, option
from a2lp.cli.pool_options import BACKBONE_HELP, DEVICE_HELP, NORMALISE_HELP
from a2lp.cli.progress import bar_on_stderr, cluster_progress, progress_of_steps
from a2lp.errors import CorruptImageError, InputError

if TYPE_CHECKING:
    from a2lp.images.backbones import Backbone
    from a2lp.images.datasets import ImageSet

SOURCE_HELP = (
    "A folder of images with a subfolder for each class, the folder of a dataset, a pack (.npz), or shards: tar "
    "archives or Parquet tables of images, by their folder or a pattern. With --join, feature files."
)
JOIN_HELP = "Join feature files of the same images by several networks into one (an ensemble)."
BASE_HELP = (
    "With --join, base statistics or labelled features of base classes, once for each file, in the same order; by "
    "default NAME_train_base.npz beside NAME_test.npz."
)
OUT_HELP = "The feature file to write (.npz, float16), or a folder of parts, for millions of images."
VIEW_HELP = (
    "The part of an image to embed, in pixels: shorter side, centre crop, and the size that the crop is resized to; by "
    "default the backbone's own."
)
FLIP_HELP = "Average over each image and its mirror image, as classify does: better features, twice the time."
CACHE_HELP = "The folder of the cache; by default $A2LP_CACHE, or a folder in the user's cache folder."


def embed(
    sources: Annotated[list[str], typer.Argument(help=SOURCE_HELP, metavar="SOURCE", show_default=False)],
    backbone: Annotated[str, option(BACKBONE_HELP, "NAME")] = "efficientnet_lite0",
    weights: Annotated[Path | None, option("The backbone's weights: .safetensors, .pth.tar or .tar.", "FILE")] = None,
    view: Annotated[str | None, option(VIEW_HELP, "RESIZE/CROP[/SIZE]")] = None,
    normalise: Annotated[str | None, option(NORMALISE_HELP, "NAME|R,G,B/R,G,B")] = None,
    dataset: Annotated[str | None, option("The dataset, if its splits are not clear from its layout.", "NAME")] = None,
    split: Annotated[str | None, option("train, val or test, for datasets with splits.", "NAME")] = None,
    out: Annotated[Path, option(OUT_HELP, "FILE|DIR")] = Path("features.npz"),
    flip: Annotated[bool, option(FLIP_HELP, None, "--flip/--no-flip")] = True,
    on_corrupt: Annotated[str, option("What to do with images that cannot be read.", "refuse|skip")] = "refuse",
    device: Annotated[str, option(DEVICE_HELP)] = "auto",
    batch_size: Annotated[int, option("Images in memory at a time.")] = 64,
    workers: Annotated[
        int | None,
        option("Threads that decode images and, on a CPU, run the network.", show_default="one for each core"),
    ] = None,
    cache: Annotated[Path | None, option(CACHE_HELP, "DIR")] = None,
    force: Annotated[bool, option("Replace FILE if it exists.", None, "--force")] = False,
    part_size: Annotated[int, option("Images per part, if OUT is a folder.")] = 1000,
    scheduler: Scheduler = None,
    join: Annotated[bool, option(JOIN_HELP, None, "--join")] = False,
    base: Annotated[list[str] | None, option(BASE_HELP, "FILE")] = None,
) -> None:
    """Embed images with a backbone, and write them as a feature file.

    Vectors are saved to a cache: the same command continues an interrupted run, and no image is embedded twice. With
    labels, base statistics (mean, class means, covariance within classes) are written to NAME_base.npz.

    If OUT is a folder, the vectors are written in parts, and are never all in memory. Finished parts are not computed
    again, so a killed run loses at most one part per process; there is no cache. With --scheduler, workers compute the
    parts.

    With --join, nothing is embedded: the vectors of several feature files are centred on the mean of the network's base
    classes, normalised to unit length, and concatenated. Rows are matched by file names.
    """
    if join:
        of_images = {"--weights": weights, "--view": view, "--normalise": normalise, "--dataset": dataset}
        of_images |= {"--split": split, "--cache": cache, "--scheduler": scheduler}
        if wrong := [name for name, value in of_images.items() if value is not None]:
            raise InputError(f"--join reads vectors, and {wrong[0]} is for images. Leave it out.")
        _join(sources, out, base or [], force=force)
        return
    if base or len(sources) > 1:
        given = "--base" if base else f"{len(sources)} sources"
        raise InputError(f"{given} can only be given with --join. Add it, or embed one source at a time.")
    source = sources[0]
    if out.suffix == "":
        options: dict[str, Any] = {"split": split, "dataset": dataset, "flip": flip, "on_corrupt": on_corrupt}
        options |= {"backbone": backbone, "weights": weights, "view": view, "normalise": normalise, "device": device}
        options |= {"batch_size": batch_size, "part_size": part_size, "workers": workers}
        if force or cache is not None:
            raise InputError(
                f"--out {out} is a folder of parts, which are never replaced and need no cache. Leave out --force and "
                "--cache; delete the folder to begin anew."
            )
        _embed_parts(source, out, scheduler, options)
        return
    if scheduler is not None:
        raise InputError(f"--scheduler makes parts, and --out {out} is one file. Name a folder, such as {out.stem}.")
    from a2lp.images.backbones import create
    from a2lp.images.datasets import load

    images = load(source, split, dataset=dataset)
    network = create(backbone, weights, view=view, normalisation=normalise, device=device)
    about: dict[str, Any] = {"source": Path(source).name, "set": images.name}
    about |= {name: value for name, value in (("dataset", dataset), ("split", split)) if value is not None}
    options = {"device": device, "batch_size": batch_size, "workers": workers, "on_corrupt": on_corrupt, "flip": flip}
    _embed_file(source, images, network, out, options | {"cache": cache, "about": about, "force": force})


def _embed_file(source: str, images: ImageSet, network: Backbone, out: Path, options: dict[str, Any]) -> None:
    from a2lp.checks import counted
    from a2lp.features.statistics import base_path
    from a2lp.images.embed import embed as embed_to_file

    with _explaining(), progress_of_steps() as progress:
        features = embed_to_file(images, network, out, progress=progress, **options)
    skipped = features.about["skipped"]
    _print_skipped(skipped)
    for label, name in enumerate(features.classes or ()):
        if features.labels is not None and label not in features.labels:
            typer.echo(f"note: no image of the class {name!r} could be read; the file has none of it.", err=True)
    (n, d), lost = features.features.shape, counted(len(skipped), "image")
    typer.echo(f"{source}: {n} vectors of {d} dimensions ({network.name}), {lost} skipped -> {out}")
    if features.labels is not None:
        typer.echo(f"base statistics of {features.n_classes} classes -> {base_path(out)}")


def _join(sources: list[str], out: Path, bases: list[str], *, force: bool) -> None:
    from a2lp.features.joining import join_files
    from a2lp.features.statistics import base_path

    features = join_files(sources, out, bases=bases, force=force)
    n, d = features.features.shape
    typer.echo(f"{features.name}: {n} vectors of {d} dimensions ({features.about['backbone']}) -> {out}")
    if features.labels is not None:
        typer.echo(f"base statistics of {features.n_classes} classes -> {base_path(out)}")


def _embed_parts(source: str, out: Path, scheduler: str | None, options: dict[str, Any]) -> None:
    from a2lp.features.parts import read_plan
    from a2lp.images.parts import embed_parts
    from a2lp.scale import Cluster

    with _explaining():
        if scheduler is None:
            with progress_of_steps() as progress:
                skipped = embed_parts(source, out, progress=progress, **options)
        else:
            with (
                bar_on_stderr() as shown,
                Cluster(scheduler, cluster_progress("embedding", "images", *shown)) as cluster,
            ):
                skipped = embed_parts(source, out, cluster=cluster, **options)
    _print_skipped(skipped)
    plan = read_plan(out)
    n = plan["n_images"] - len(skipped)
    kinds = f"{plan['dim']} dimensions ({plan['backbone']})"
    typer.echo(f"{source}: {n} vectors of {kinds} in {plan['n_parts']} parts, {len(skipped)} images skipped -> {out}")


@contextmanager
def _explaining() -> Iterator[None]:
    """Say what damaged images and interruptions lead to."""
    with interruptible("finished vectors are kept, and the same command continues from there"):
        try:
            yield
        except CorruptImageError as error:
            raise InputError(f"{error} On the command line: --on-corrupt skip.") from error


def _print_skipped(skipped: Mapping[str, str]) -> None:
    for file, reason in skipped.items():
        typer.echo(f"skipped: {file}: {reason}", err=True)

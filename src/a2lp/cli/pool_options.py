"""Options of the commands that label a pool."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from a2lp.cli.options import option

Source = Annotated[
    str,
    typer.Argument(
        help="A folder of images, a feature file (.npz, .npy, .safetensors, .parquet), a folder of parts that embed "
        "wrote, or - for paths on stdin.",
        metavar="SOURCE",
    ),
]
LABELS_HELP = (
    "Your labels: a .csv, .tsv or .parquet with the columns label and path (or id, or index: the row from 0), or a "
    "folder with a subfolder of examples for each class. May be repeated."
)
Labels = Annotated[list[str], option(LABELS_HELP, "FILE|DIR")]
NAMES_HELP = "A text file with the names of the classes, one per line. With vectors of the names, labels are optional."
Names = Annotated[Path | None, option(NAMES_HELP, "FILE")]
TEXT_HELP = (
    "Vectors of the names, one row each, from the text encoder that belongs to the image encoder: .npz (text, "
    "classes), .npy or .safetensors. By default those in SOURCE, or those of an open_clip backbone."
)
Text = Annotated[Path | None, option(TEXT_HELP, "FILE")]
Force = Annotated[bool, option("Replace OUT and the page if they exist.", None, "--force")]

BACKBONE_HELP = (
    "For images: efficientnet_lite0, onnx:FILE, or in torch resnet12, resnet12_512, wrn28_10, timm:NAME, "
    "open_clip:NAME."
)
WEIGHTS_HELP = "The backbone's weights, in torch: .safetensors, .pth.tar or .tar."
VIEW_HELP = "The part of an image that the backbone sees, in pixels; by default the backbone's own."
NORMALISE_HELP = (
    "How pixels in 0..1 are normalised: imagenet, clip, half, none, or means/deviations of red, green and blue; by "
    "default the backbone's own."
)
DEVICE_HELP = "cpu, cuda, cuda:1, ... auto uses CUDA if available, and the CPU for efficientnet_lite0 and onnx:FILE."
BOTH_HELP = (
    "Where images are embedded and labels propagated: cpu, cuda, cuda:1, ... auto uses CUDA if available, for torch "
    "networks and for 20,000 points or more; efficientnet_lite0 and onnx:FILE run on the CPU."
)
CORRUPT_HELP = "What to do with images that cannot be read."
CACHE_HELP = "The folder of the cache; by default $A2LP_CACHE, or a folder in the user's cache folder."
PROMPT_HELP = (
    "With open_clip: a text with {} for the name, such as 'an aerial photo of {}.'. May be repeated; the vectors are "
    "averaged."
)
_of_images = partial(option, rich_help_panel="For images")


def takes_images(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for images; it gets them as ``how``, an ``Embedding``."""
    own, shared = (inspect.signature(each, eval_str=True) for each in (command, _embedding))

    @wraps(command)
    def run(**given: Any) -> None:
        how = _embedding(**{name: given.pop(name) for name in shared.parameters})
        command(**given, how=how)

    kept = {name: parameter for name, parameter in own.parameters.items() if name != "how"} | dict(shared.parameters)
    run.__signature__ = own.replace(parameters=list(kept.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in kept.items()}
    return run


def _embedding(
    backbone: Annotated[str, _of_images(BACKBONE_HELP, "NAME")] = "efficientnet_lite0",
    weights: Annotated[Path | None, _of_images(WEIGHTS_HELP, "FILE")] = None,
    view: Annotated[str | None, _of_images(VIEW_HELP, "RESIZE/CROP[/SIZE]")] = None,
    normalise: Annotated[str | None, _of_images(NORMALISE_HELP, "NAME|R,G,B/R,G,B")] = None,
    device: Annotated[str, option(BOTH_HELP)] = "auto",
    on_corrupt: Annotated[str, _of_images(CORRUPT_HELP, "refuse|skip")] = "skip",
    cache: Annotated[Path | None, _of_images(CACHE_HELP, "DIR")] = None,
    prompt: Annotated[list[str], _of_images(PROMPT_HELP, "TEXT")] = [],
) -> Any:
    from a2lp.labelling.sources import Embedding

    return Embedding(backbone, weights, view, device, on_corrupt, cache, normalise=normalise, prompts=tuple(prompt))

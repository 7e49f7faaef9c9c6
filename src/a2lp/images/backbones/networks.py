"""Torch networks by name: a ``network`` to train, or one with weights to embed images."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from a2lp.checks import shown
from a2lp.errors import InputError, UnknownNameError
from a2lp.images.backbones.base import Network
from a2lp.images.backbones.checkpoints import fill
from a2lp.images.backbones.table import NETWORKS, PACKAGES, names
from a2lp.images.backbones.torch_backbone import TorchBackbone
from a2lp.images.backbones.weight_files import read_weights
from a2lp.images.normalisation import Normalisation
from a2lp.images.view import View


def torch_backbone(
    name: str,
    weights: str | Path | None = None,
    *,
    view: View | None = None,
    normalisation: Normalisation | None = None,
    seed: int | None = None,
) -> TorchBackbone:
    """A torch network, ready to embed images; the parameters are those of ``create``.

    Examples
    --------
    >>> from a2lp.images.backbones.networks import torch_backbone
    >>> resnet = torch_backbone("resnet12", seed=0)
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
    mean, std = normalisation or (net.mean, net.std)
    return TorchBackbone(
        name=name, dim=net.dim, view=view or net.view, mean=mean, std=std, weights=net.weights, module=net
    )


def network(name: str, *, seed: int = 0, **options: Any) -> Network:
    """A network to train: random weights, in training mode.

    Parameters
    ----------
    name : str
        One of ``names()`` that torch runs.
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
    for prefix, (where, example) in PACKAGES.items():
        if name.startswith(prefix):
            model = name.removeprefix(prefix)
            if not model or model == "<name>":
                raise InputError(f"backbone {name!r} needs the name of {example}.")
            return partial(_function(where), model)
    if name not in NETWORKS:
        raise UnknownNameError("backbone", name, names())
    return _function(NETWORKS[name][0])


def _function(where: str) -> Callable[..., Network]:
    module, name = where.split(":")
    found: Callable[..., Network] = getattr(import_module(f"{__package__}.{module}"), name)
    return found

"""Networks from images to features, by name: ``create`` one to embed images, or a torch ``network`` to train."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from a2lp.errors import InputError
from a2lp.images import Normalisation, View, require_torch
from a2lp.images.backbones.backbone import Backbone
from a2lp.images.backbones.table import DEFAULT, ONNX, names

if TYPE_CHECKING:
    from a2lp.images.backbones.base import Network
    from a2lp.images.backbones.checkpoints import load_weights, save_weights
    from a2lp.images.backbones.networks import network

__all__ = ["Backbone", "Network", "create", "load_weights", "names", "network", "save_weights"]

_OF_TORCH = {"Network": "base", "network": "networks", "load_weights": "checkpoints", "save_weights": "checkpoints"}


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use."""
    if name not in _OF_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_torch(f"backbones.{name}")
    return getattr(import_module(f"{__name__}.{_OF_TORCH[name]}"), name)


def create(
    name: str,
    weights: str | Path | None = None,
    *,
    view: View | str | None = None,
    normalisation: Normalisation | str | None = None,
    seed: int | None = None,
    device: str = "auto",
) -> Backbone:
    """Create a backbone, ready to embed images.

    The default one, ``efficientnet_lite0``, and ``onnx:FILE`` are run by onnxruntime on the CPU, without torch. With
    ``weights`` of your own or on another ``device``, ``efficientnet_lite0`` is a torch network, like all others.

    Parameters
    ----------
    name : str
        One of ``names()``.
    weights : str or Path, optional
        A file that ``load_weights`` reads. A file that ``save_weights`` wrote also restores options, view and
        normalisation. Without a file, pretrained backbones use their own weights.
    view, normalisation : View, Normalisation or str, optional
        Replace the backbone's own; as text, in the form that ``View.parse`` and ``Normalisation.parse`` read.
    seed : int, optional
        Makes random weights for a backbone that has none of its own.
    device : str
        Where it will run.

    Returns
    -------
    Backbone

    Examples
    --------
    >>> from a2lp.images import backbones
    >>> default = backbones.create("efficientnet_lite0")
    >>> default.dim, str(default.view)
    (1280, '288/288')
    """
    view = View.parse(view) if isinstance(view, str) else view
    normalisation = Normalisation.parse(normalisation) if isinstance(normalisation, str) else normalisation
    own_weights = weights is None and seed is None
    if name.startswith(ONNX) or (name == DEFAULT and own_weights and device in ("auto", "cpu")):
        from a2lp.images.backbones.onnx_backbone import SHIPPED, onnx_backbone

        if not own_weights:
            raise InputError(f"backbone {name!r} has its weights in its own file. Leave out weights and seed.")
        source = SHIPPED if name == DEFAULT else name.removeprefix(ONNX)
        return onnx_backbone(name, source, view=view, normalisation=normalisation)
    require_torch(f"backbone {name!r}")
    from a2lp.images.backbones.networks import torch_backbone

    return torch_backbone(name, weights, view=view, normalisation=normalisation, seed=seed)

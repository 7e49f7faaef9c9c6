"""From images to features: backbones, datasets, pre-training, embedding. All of it needs the extra ``images``."""

from __future__ import annotations

from importlib.util import find_spec

from a2lp.errors import MissingExtraError
from a2lp.images.view import View

__all__ = ["View"]

# checked once here, so that the modules inside may import these at their top
for _module, _package in {"torch": "torch", "PIL": "pillow", "safetensors": "safetensors"}.items():
    if find_spec(_module) is None:
        raise MissingExtraError("working with images", _package, "images")

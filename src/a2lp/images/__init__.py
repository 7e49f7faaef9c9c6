"""From images to features: backbones, datasets, pre-training, embedding.

All of it needs the extra ``images``; networks of torch, and training, need ``torch-images``.
"""

from __future__ import annotations

from importlib.util import find_spec

from a2lp.errors import MissingExtraError
from a2lp.images.normalisation import Normalisation
from a2lp.images.view import View

__all__ = ["Normalisation", "View", "require_torch"]

# checked once here, so that the modules inside may import it at their top
if find_spec("PIL") is None:
    raise MissingExtraError("working with images", "pillow", "images")


def require_torch(what: str) -> None:
    """Refuse what needs torch where it is not installed; called before modules that import it at their top."""
    for package in ("torch", "safetensors"):
        if find_spec(package) is None:
            raise MissingExtraError(what, package, "torch-images")

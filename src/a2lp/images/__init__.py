"""From images to features: backbones, datasets, pre-training, embedding.

All of it needs the extra ``images``; networks of torch, and training, need ``torch-images``.
"""

from __future__ import annotations

from a2lp.errors import require_packages
from a2lp.images.normalisation import Normalisation
from a2lp.images.view import View

__all__ = ["Normalisation", "View", "require_torch"]

# checked once here, so that the modules of this package can import it at the top
require_packages("working with images", "images", "PIL")


def require_torch(what: str) -> None:
    """Raise MissingExtraError if torch is not installed; called before importing modules that need it."""
    require_packages(what, "torch-images", "torch", "safetensors")

"""Methods with parts that are trained on base classes, and their training. All of it needs the extra ``torch``."""

from __future__ import annotations

from importlib.util import find_spec

from a2lp.errors import MissingExtraError

# checked once here, so that the modules inside may import these at their top
for _package in ("torch", "safetensors"):
    if find_spec(_package) is None:
        raise MissingExtraError("a method that is trained on base classes", _package, "torch")

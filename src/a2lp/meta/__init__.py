"""Methods with parts that are trained on base classes, and their training. All of it needs the extra ``torch``."""

from __future__ import annotations

from a2lp.errors import require_packages

# checked once here, so that the modules of this package can import these at the top
require_packages("a method that is trained on base classes", "torch", "torch", "safetensors")

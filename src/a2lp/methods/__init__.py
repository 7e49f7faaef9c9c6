"""Methods: each a frozen set of parameters with ``predict(batch)``.

The package is itself callable: ``a2lp.methods()`` is the table of names, each with one line.
"""

from __future__ import annotations

import sys
from types import ModuleType


class _Methods(ModuleType):
    """A module has the name that the function should have, so the module is the function too."""

    def __call__(self) -> dict[str, str]:
        """Every method there is, with one line on each."""
        from a2lp.methods import registry

        return registry.methods()


sys.modules[__name__].__class__ = _Methods

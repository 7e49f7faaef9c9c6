"""Label a handful, get the rest: your own images or vectors.

The package is itself callable: ``a2lp.label(embeddings, labels)`` is ``a2lp.label.classify.label``. For files,
``classify_files`` does what ``a2lp classify`` does. Names are loaded when they are used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from a2lp.label.classify import Labelled as Labelled
    from a2lp.label.labels import read_labels as read_labels
    from a2lp.label.outputs import write_output as write_output
    from a2lp.label.sources import Embedding as Embedding
    from a2lp.label.sources import open_source as open_source
    from a2lp.label.tool import classify_files as classify_files
    from a2lp.label.tool import open_task as open_task

_WHERE = {
    "Embedding": "a2lp.label.sources",
    "Labelled": "a2lp.label.classify",
    "classify_files": "a2lp.label.tool",
    "open_source": "a2lp.label.sources",
    "open_task": "a2lp.label.tool",
    "read_labels": "a2lp.label.labels",
    "write_output": "a2lp.label.outputs",
}

__all__ = list(_WHERE)


class _Label(ModuleType):
    """A module has the name that the function should have, so the module is the function too."""

    def __call__(self, embeddings: Any, labels: Any, **options: Any) -> Labelled:
        """Label all points from a few: see ``a2lp.label.classify.label``."""
        from a2lp.label.classify import label

        return label(embeddings, labels, **options)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'a2lp.label' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


sys.modules[__name__].__class__ = _Label

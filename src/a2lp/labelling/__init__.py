"""Label a handful of images or vectors, get the rest: files in, files out. Names are loaded when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from a2lp.labelling.labelled import Labelled as Labelled
    from a2lp.labelling.labels import read_labels as read_labels
    from a2lp.labelling.outputs import write_output as write_output
    from a2lp.labelling.sources import Embedding as Embedding
    from a2lp.labelling.sources import open_source as open_source
    from a2lp.labelling.suggest import suggest_files as suggest_files
    from a2lp.labelling.suggested import Suggested as Suggested
    from a2lp.labelling.tool import classify_files as classify_files
    from a2lp.labelling.tool import open_task as open_task

_WHERE = {
    "Embedding": "sources",
    "Labelled": "labelled",
    "Suggested": "suggested",
    "classify_files": "tool",
    "open_source": "sources",
    "open_task": "tool",
    "read_labels": "labels",
    "suggest_files": "suggest",
    "write_output": "outputs",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'a2lp.labelling' has no attribute {name!r}")
    return getattr(import_module(f"a2lp.labelling.{_WHERE[name]}"), name)

"""What the readers and writers of feature files share.

A reader gives the arguments of ``FeatureSet``, which checks them; a writer gets a checked set. Neither
says where the file is: ``files`` puts that before every message.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from a2lp.errors import InputError
from a2lp.features.sets import FeatureSet

Fields = dict[str, Any]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside ``path`` and rename it at the end: no half-written file is ever seen."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def label_values(features: FeatureSet) -> list[Any] | None:
    """Each row's class name, or its number where classes have no names."""
    if features.labels is None:
        return None
    labels: list[Any] = features.labels.tolist()
    return labels if features.classes is None else [features.classes[label] for label in labels]


def from_json(what: str, text: Any) -> Any:
    """What some JSON text says."""
    try:
        return json.loads(text)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be JSON text, found {str(text)[:40]!r} ({error}).") from error


def known_from_json(what: str, text: Any) -> Fields:
    """``classes`` and ``about`` of a JSON object, where it has them."""
    known = from_json(what, text)
    if not isinstance(known, dict):
        raise InputError(f"{what} must be a JSON object with `classes` and `about`, found {type(known).__name__}.")
    return {key: known[key] for key in ("classes", "about") if known.get(key) is not None}


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names for a message, the first dozen of them."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(f"`{name}`" for name in names[:most]) or "nothing") + more

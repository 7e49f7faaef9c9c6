"""Commands of the page: what they must look like, and the lines of the log that they become."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from a2lp.checks import shown
from a2lp.errors import InputError
from a2lp.serve.state import PINS, Labels

HOW = ("own", "suggested", "audit", "lasso", "group")
_ROWS = ("label", "accept", "accept_unseen", "reject", "clear")
_MOST_NAME = 200
_MOST_AUDIT = 2000


class View(NamedTuple):
    """What the page shows: keys of the points, the class shown for each (-1: none), and its probability."""

    keys: Sequence[str]
    classes: Callable[[Sequence[int]], list[int]]
    confidences: Callable[[Sequence[int]], list[float]]
    unlabelled: Callable[[], Any]


class Conflict(InputError):
    """A command that the state does not allow."""


def line_of(command: Mapping[str, Any], labels: Labels, view: View) -> dict[str, Any]:
    """The line of a command, without ``seq``.

    Raises
    ------
    InputError
        Where the command is not well formed, or names what does not exist.
    Conflict
        Where it cannot be done now.
    """
    id, op = command.get("id"), command.get("op")
    if not isinstance(id, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", id):
        raise InputError(f"id={shown(id)} must be 1 to 64 letters, digits, - or _, new for each command.")
    made: dict[str, Any] = {"t": round(time.time(), 3), "id": id, "op": op}
    if op in _ROWS:
        return made | _about_rows(str(op), command, labels, view)
    if op in _OTHERS:
        return made | _OTHERS[str(op)](command, labels, view)
    raise InputError(f"op={shown(op)} is no command. There are {', '.join([*_ROWS, *_OTHERS, 'redo', 'noop'])}.")


def _about_rows(op: str, command: Mapping[str, Any], labels: Labels, view: View) -> dict[str, Any]:
    rows = read_rows(command.get("rows"), len(view.keys))
    line: dict[str, Any] = {"keys": [view.keys[row] for row in rows]}
    if op == "clear":
        return line
    how = command.get("how", "own")
    if how not in HOW:
        raise InputError(f"how={shown(how)} must be one of {', '.join(HOW)}.")
    if op == "label":
        name = read_name(command.get("label"))
        line |= {"label": name, "class": labels.code_of(name)}
    elif op in ("accept", "accept_unseen"):
        codes = _accepted(command, rows, labels, view)
        line |= {"label": gathered([labels.classes[code].name for code in codes]), "class": gathered(codes)}
    line["how"] = how
    before, confidences = view.classes(rows), view.confidences(rows)
    # in an audit the prediction is hidden, so that it cannot sway the user
    if how != "audit" and any(code >= 0 for code in before):
        line["shown"] = gathered([labels.classes[code].name if code >= 0 else None for code in before])
        line["shown_class"] = gathered([code if code >= 0 else None for code in before])
        line["confidence"] = gathered([round(float(value), 4) for value in confidences])
    return line


def gathered(values: Sequence[Any]) -> Any:
    """The shortest form of values that ``state.spread`` can read: one value where all are equal."""
    return values[0] if values and all(value == values[0] for value in values) else list(values)


def _accepted(command: Mapping[str, Any], rows: Sequence[int], labels: Labels, view: View) -> list[int]:
    """The classes that the user has seen and accepted: those named by the page, else those shown now."""
    codes = command.get("labels")
    if codes is None:
        codes = view.classes(rows)
    if not isinstance(codes, list) or len(codes) != len(rows) or not all(type(code) is int for code in codes):
        raise InputError(f"labels={shown(codes)} must list the class of each of the {len(rows)} rows by its number.")
    for row, code in zip(rows, codes, strict=True):
        if not 0 <= code < len(labels.classes) or labels.classes[labels.classes[code].root].gone:
            raise Conflict(f"row {row} was shown with class {code}, which does not exist any more. Look at it again.")
    return [labels.classes[code].root for code in codes]


def _make(command: Mapping[str, Any], labels: Labels, view: View) -> dict[str, Any]:
    name = read_name(command.get("label"))
    return {"label": name, "class": labels.code_of(name)}


def _rename(command: Mapping[str, Any], labels: Labels, view: View) -> dict[str, Any]:
    name, to = read_name(command.get("label")), read_name(command.get("to"))
    code = _existing(name, labels)
    if to != name and _is_class(to, labels):
        raise Conflict(f"there is a class {shown(to)} already. Merge {shown(name)} into it, or choose another name.")
    return {"label": name, "class": code, "to": to}


def _merge(command: Mapping[str, Any], labels: Labels, view: View) -> dict[str, Any]:
    name, to = read_name(command.get("label")), read_name(command.get("to"))
    if name == to:
        raise InputError(f"the class {shown(name)} cannot be merged into itself. Name another one.")
    return {"label": name, "class": _existing(name, labels), "to": to, "to_class": _existing(to, labels)}


def _pin(command: Mapping[str, Any], labels: Labels, view: View) -> dict[str, Any]:
    name, key = read_name(command.get("label")), command.get("key")
    if key not in PINS:
        raise InputError(f"key={shown(key)} must be one of {', '.join(PINS)}.")
    return {"label": name, "class": _existing(name, labels), "key": key}


def _undo(command: Mapping[str, Any], labels: Labels, view: View) -> dict[str, Any]:
    seq = command.get("seq")
    if seq is None:
        seq = labels.last_done()
        if seq is None:
            raise Conflict("there is nothing to undo.")
    if type(seq) is not int or not 1 <= seq <= labels.seq:
        raise InputError(f"seq={shown(seq)} must be the number of a command, 1 to {labels.seq}.")
    if not labels.active(seq):
        raise Conflict(f"command {seq} is undone already. Redo it first.")
    return {"undoes": seq}


def _redo(command: Mapping[str, Any], labels: Labels, view: View) -> dict[str, Any]:
    if (seq := labels.last_undone()) is None:
        raise Conflict("there is nothing to redo.")
    return {"op": "undo", "undoes": seq}


def _audit(command: Mapping[str, Any], labels: Labels, view: View) -> dict[str, Any]:
    """Points for a blind audit, drawn at random from the unlabelled ones, with the predictions that it is about."""
    n, free = command.get("n", 50), view.unlabelled()
    if type(n) is not int or not 1 <= n <= _MOST_AUDIT:
        raise InputError(f"n={shown(n)} must be a whole number of points, 1 to {_MOST_AUDIT}.")
    if len(free) == 0:
        raise Conflict("all points are labelled, so there is nothing to audit.")
    rows = np.random.default_rng([labels.seq, len(free)]).permutation(free)[:n].tolist()
    codes = view.classes(rows)
    return {
        "keys": [view.keys[row] for row in rows],
        "predicted": [labels.classes[code].name if code >= 0 else None for code in codes],
        "predicted_class": [code if code >= 0 else None for code in codes],
        "of": len(free),
    }


_OTHERS: dict[str, Callable[[Mapping[str, Any], Labels, View], dict[str, Any]]] = {
    "class": _make,
    "rename": _rename,
    "merge": _merge,
    "pin": _pin,
    "undo": _undo,
    "redo": _redo,
    "audit_start": _audit,
}


def read_rows(rows: Any, n: int, most: int | None = None) -> list[int]:
    """Rows of points, each once, in the order given."""
    if not isinstance(rows, list) or not rows or not all(type(row) is int and 0 <= row < n for row in rows):
        raise InputError(f"rows={shown(rows)} must list rows of the source, 0 to {n - 1}.")
    found = list(dict.fromkeys(rows))
    if most is not None and len(found) > most:
        raise InputError(f"rows lists {len(found)} points; at most {most} can be asked for at once.")
    return found


def read_name(name: Any) -> str:
    """The name of a class, without blanks around it."""
    text = unicodedata.normalize("NFC", name).strip() if isinstance(name, str) else ""
    if not text or len(text) > _MOST_NAME or any(unicodedata.category(sign) in ("Cc", "Cs") for sign in text):
        raise InputError(
            f"{shown(name)} must be the name of a class: 1 to {_MOST_NAME} characters, no control characters."
        )
    if text == "-1":
        raise InputError("'-1' means unlabelled everywhere in this library and cannot be a class. Choose another name.")
    return text


def _is_class(name: str, labels: Labels) -> bool:
    return any(info.name == name and not info.gone for info in labels.classes)


def _existing(name: str, labels: Labels) -> int:
    if not _is_class(name, labels):
        raise Conflict(f"there is no class {shown(name)}. Make it first.")
    return labels.code_of(name)

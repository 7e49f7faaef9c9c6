"""Checks of parameters, and values in messages. Errors name the value, the rule that it breaks, and the remedy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import field, fields
from numbers import Integral, Real
from typing import Any

import numpy as np

from a2lp.errors import InputError, UnknownNameError

_SHOWN = 80  # characters of a value in a message


def shown(value: Any) -> str:
    """A value for a message: NumPy scalars as plain numbers, long values cut in the middle."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 20]} ... {text[-15:]}"


def listed(names: Iterable[Any], most: int = 12) -> str:
    """Names for a message, the first ``most`` of them."""
    names = [str(name) for name in names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(f"`{name[:_SHOWN]}`" for name in names[:most]) or "nothing") + more


def counted(n: int, noun: str) -> str:
    """A number and its noun: ``1 image``, ``2 images``; for nouns whose plural ends in s."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def require_number(name: str, value: Any, rule: str, holds: Callable[[Any], bool], remedy: str) -> None:
    """Raise InputError unless a parameter is a finite number that follows its rule."""
    if not (isinstance(value, Real) and math.isfinite(value) and holds(value)):
        raise InputError(f"{name}={shown(value)} must be {rule}. {remedy}")


def require_whole(name: str, value: Any, least: int, remedy: str) -> None:
    """Raise InputError unless a parameter is an integer of at least ``least``."""

    def holds(v: Any) -> bool:
        return not isinstance(v, bool) and isinstance(v, Integral) and int(v) >= least

    require_number(name, value, f"a whole number, {least} or more", holds, remedy)


def require_name(kind: str, value: Any, known: Iterable[str]) -> None:
    """Raise UnknownNameError unless a parameter is one of some names."""
    if not (isinstance(value, str) and value in known):
        raise UnknownNameError(kind, value, known)


def require_distinct(what: str, names: Iterable[Any]) -> None:
    """Raise InputError if a class name occurs twice."""
    first: dict[Any, int] = {}
    for i, name in enumerate(names):
        if first.setdefault(name, i) != i:
            raise InputError(
                f"{what} has {shown(name)} at {first[name]} and at {i}; a class is named once. Average the vectors of "
                "its names, or rename one."
            )


def require_flag(name: str, value: Any, remedy: str) -> None:
    """Raise InputError unless a parameter is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name}={shown(value)} must be True or False. {remedy}")


def require_betas(name: str, value: Any) -> None:
    """Raise InputError unless a parameter holds the two decay rates of Adam."""
    remedy = "Adam's defaults are (0.9, 0.999)."
    if not (isinstance(value, tuple | list) and len(value) == 2):
        raise InputError(f"{name}={shown(value)} must be two numbers. {remedy}")
    for beta in value:
        require_number(name, beta, "at least 0 and below 1, each", lambda v: 0 <= v < 1, remedy)


# of the fields of frozen dataclasses; None is allowed where it is the default, and subclasses may change the default
RULES: dict[str, Callable[[Any], bool]] = {
    "finite": lambda v: True,
    "positive": lambda v: v > 0,
    "0 or more": lambda v: v >= 0,
    "1 or more": lambda v: v >= 1,
    "from 0 to 1": lambda v: 0 <= v <= 1,
    "at least 0 and below 1": lambda v: 0 <= v < 1,
    "above 0 and at most 1": lambda v: 0 < v <= 1,
}


def number(default: Any, rule: str, remedy: str) -> Any:
    """A field that holds a number under one of ``RULES``."""
    return checked(default, lambda name, value: require_number(name, value, rule, RULES[rule], remedy))


def whole(default: Any, least: int, remedy: str) -> Any:
    """A field that holds an integer of at least ``least``."""
    return checked(default, lambda name, value: require_whole(name, value, least, remedy))


def choice(default: str, known: Iterable[str]) -> Any:
    """A field that holds one of some names."""
    return checked(default, lambda name, value: require_name(name, value, known))


def flag(default: Any, remedy: str) -> Any:
    """A field that is True or False."""
    return checked(default, lambda name, value: require_flag(name, value, remedy))


def checked(default: Any, check: Callable[[str, Any], None]) -> Any:
    """A field with a check of its own."""
    return field(default=default, metadata={"check": check, "optional": default is None})


def check_fields(instance: Any) -> None:
    """Check all fields of a frozen dataclass; NumPy's scalars become plain numbers."""
    for name in (each.name for each in fields(instance)):
        value = getattr(instance, name)
        if isinstance(value, np.generic):  # with float32 arrays, a NumPy scalar would give float64 results
            value = value.item()
            object.__setattr__(instance, name, value)
        declared = (vars(kind).get("__dataclass_fields__", {}).get(name) for kind in type(instance).__mro__)
        rules = next((each.metadata for each in declared if each is not None and "check" in each.metadata), None)
        if rules is not None and not (value is None and rules["optional"]):
            rules["check"](name, value)

"""The table of methods: names, one line each, and where they live; nothing is imported until it is asked for."""

from __future__ import annotations

import dataclasses
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from a2lp.errors import InputError, UnknownNameError
from a2lp.methods.base import Method

ENTRY_POINT_GROUP = "a2lp.methods"

_TABLE: dict[str, tuple[str, str]] = {
    "prototypical": ("a2lp.methods.prototypical:Prototypical", "nearest class mean (Snell et al. 2017)"),
    "imprinting": (
        "a2lp.methods.imprinting:Imprinting",
        "class means fine-tuned by cross-entropy (Qi et al. 2018)",
    ),
    "lp": (
        "a2lp.methods.propagation:LP",
        "label propagation on the nearest-neighbour graph (Zhou et al. 2003)",
    ),
    "a2lp": ("a2lp.methods.propagation:A2LP", "label propagation with adapted anchors (Lazarou et al. 2023)"),
}


def methods() -> dict[str, str]:
    """Every method there is, with one line on each; those of installed plug-ins too."""
    lines = {name: line for name, (_, line) in _TABLE.items()}
    return lines | {name: f"plug-in: {point.value}" for name, point in _plug_ins().items() if name not in lines}


def create(name: str, **params: Any) -> Method:
    """A method by name.

    Parameters
    ----------
    name : str
        One of ``a2lp.methods()``.
    **params
        The method's own parameters; what is not given keeps the paper's value.

    Examples
    --------
    >>> import a2lp
    >>> a2lp.create("lp", alpha=0.5).alpha
    0.5
    """
    method = method_class(name)
    known = [f.name for f in dataclasses.fields(method)]
    for param in params:
        if param not in known:
            raise UnknownNameError(f"parameter of method {name!r}:", param, known)
    return method(**params)


def method_class(name: str) -> type[Method]:
    """The class behind a name."""
    if name in _TABLE:
        module, attribute = _TABLE[name][0].split(":")
        found: Any = getattr(import_module(module), attribute)
    elif name in _plug_ins():
        point = _plug_ins()[name]
        try:
            found = point.load()
        except Exception as error:
            raise InputError(
                f"plug-in {name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}. Mend or "
                "uninstall the package that brings it."
            ) from error
    else:
        raise UnknownNameError("method", name, methods())
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InputError(f"plug-in {name!r} gives {found!r}; it must be a subclass of a2lp.Method.")
    return found


@cache
def _plug_ins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}

"""The errors of this library.

Every message names the value, the rule it breaks and the remedy::

    A2LPError
    ├── InputError (ValueError)          a value that cannot be used
    │   ├── ShapeError                   arrays whose shapes do not fit together
    │   ├── ClassTooSmallError           a class with fewer examples than a task needs
    │   ├── UnknownNameError             a name that is not in a table; lists the nearest ones
    │   └── UnknownKeyError (KeyError)   a key that no point has
    ├── FeatureFileError (OSError)       a file that cannot be read or written
    ├── WeightsFileError (OSError)       weights that cannot be read or written, or do not fit the network
    ├── DatasetError (OSError)           files that are not laid out as a set of images should be
    │   └── CorruptImageError            one image that cannot be decoded
    ├── ClusterError (RuntimeError)      workers or a scheduler that cannot be reached, or were lost
    └── MissingExtraError (ImportError)  an optional dependency that is not installed

    A2LPWarning (UserWarning)            something was adjusted, and the message says what
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class A2LPError(Exception):
    """Root of everything that this library raises on purpose.

    Examples
    --------
    >>> import a2lp
    >>> try:
    ...     a2lp.create("a2lpp")
    ... except a2lp.A2LPError as error:
    ...     print(str(error)[:43])
    unknown method 'a2lpp'. Did you mean 'a2lp'
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # an exception is pickled as its class and its message, which some of the classes below do not take
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[A2LPError], args: tuple[Any, ...], attributes: dict[str, Any]) -> A2LPError:
    """Rebuild an error that was raised in another process."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class InputError(A2LPError, ValueError):
    """A value that cannot be used."""


class ShapeError(InputError):
    """Arrays whose shapes do not fit together."""


class ClassTooSmallError(InputError):
    """A class has fewer examples than a task needs."""


class UnknownNameError(InputError):
    """A name that is not among the ``known`` ones; ``kind`` is what it should name, such as ``"method"``."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        shown = repr(str(name)[:80]) if isinstance(name, str) else str(name)[:80]  # str: of NumPy's text and numbers
        super().__init__(f"unknown {kind} {shown}. {did_you_mean(name, known, 0.5)}There are: {', '.join(known)}.")


class UnknownKeyError(InputError, KeyError):
    """A key that no point has."""

    __str__ = Exception.__str__  # a KeyError would show its message in quotes


class FeatureFileError(A2LPError, OSError):
    """A file that cannot be read or written."""


class WeightsFileError(A2LPError, OSError):
    """A file of weights that cannot be read or written, or does not fit the network."""


class DatasetError(A2LPError, OSError):
    """Files that are not laid out as a set of images should be."""


class CorruptImageError(DatasetError):
    """One image that cannot be decoded: its key in the set, and the reason."""

    def __init__(self, file: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the image {file[:200]} cannot be used: {reason}. Replace or remove it, or ask for corrupt images to be "
            "skipped."
        )
        self.file = file


class ClusterError(A2LPError, RuntimeError):
    """Workers or a scheduler that cannot be reached, or were lost."""


class MissingExtraError(A2LPError, ImportError):
    """``what`` needs a package that is not installed and comes with an ``extra`` of a2lp."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        package = "pillow" if package == "PIL" else package
        self.package, self.extra = package, extra
        super().__init__(f"{what} needs {package}, which is not installed. Install it with: {install_command(extra)}")


def require_packages(what: str, extra: str, *packages: str) -> None:
    """Raise MissingExtraError if a package is not installed; called before importing modules that need it."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtraError(what, package, extra)


def import_extra(what: str, extra: str, package: str, *modules: str) -> Any:
    """An optional package that ``what`` needs, with some of its modules imported."""
    try:
        found = import_module(package)
        for module in modules:
            import_module(f"{package}.{module}")
    except ImportError as error:
        raise MissingExtraError(what, (error.name or package).partition(".")[0], extra) from error
    return found


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation, from the same origin as a2lp itself.

    The origin is the checkout it runs from, the folder, file or repository it was installed from, or the index.

    Examples
    --------
    >>> from a2lp.errors import install_command
    >>> install_command("images").endswith("[images]'")
    True
    """
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return f"pip install --editable {shlex.quote(f'{checkout}[{extra}]')}"
    return f"pip install {shlex.quote(_origin(extra))}"


def _origin(extra: str) -> str:
    """The requirement for pip; installers write direct_url.json for packages that are not from an index (PEP 610)."""
    from importlib.metadata import PackageNotFoundError, distribution  # here: they take 50 ms
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        found = json.loads(distribution("a2lp").read_text("direct_url.json") or "{}")
        url = urlsplit(found["url"])
        if "vcs_info" in found:
            return f"a2lp[{extra}] @ {found['vcs_info']['vcs']}+{found['url']}"
        path = url2pathname(url.path)
        if url.scheme == "file" and Path(path).exists():
            return f"{path}[{extra}]"
    except (PackageNotFoundError, KeyError, TypeError, ValueError):  # not installed, or from an index
        pass
    return f"a2lp[{extra}]"


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A question that suggests the nearest known names; empty if none is near."""
    near = difflib.get_close_matches(str(name)[:80], list(known), cutoff=cutoff)
    return f"Did you mean {' or '.join(map(repr, near))}? " if near else ""


class A2LPWarning(UserWarning):
    """Something was adjusted, and the message says what.

    Examples
    --------
    >>> import warnings
    >>> import a2lp
    >>> warnings.simplefilter("ignore", a2lp.A2LPWarning)  # or "error", to stop at the first
    """

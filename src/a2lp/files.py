"""Reading and writing files safely.

Only regular files are opened, and any failure to parse one becomes an error that names the file. Files are written
under a temporary name and then renamed, so that a half-written file is never visible.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from a2lp.checks import shown
from a2lp.errors import A2LPError, FeatureFileError, InputError

TEXT_BYTES = 256 << 20  # the largest text file that is read
_JSON_DEPTH = 64  # levels of lists and objects
_DIGITS = 100  # of a whole number in JSON; seeds of 256 bits have 78


# ---- reading ------------------------------------------------------------------------------------------------------


def check_file(
    path: str | Path, expected: str, *, most: int | None = None, error: type[A2LPError] = FeatureFileError
) -> int:
    """Refuse a path that cannot be read as a file, without opening it; return the file's size in bytes.

    Opening a pipe would wait for its writer forever, and reading a device would never end. ``expected`` describes the
    file in messages, such as ``"a task list (.npz)"``, ``most`` is the largest size in bytes, and ``error`` is the
    class of the exception.
    """
    try:
        status = Path(path).stat()
        readable = os.access(path, os.R_OK)
    except (FileNotFoundError, NotADirectoryError, ValueError) as failure:  # ValueError: a NUL in the name
        raise error(f"{path} does not exist; expected {expected}. Check the name.") from failure
    except OSError as failure:
        raise error(f"{path} cannot be read: {failure.strerror}. Check the name and the permissions.") from failure
    if stat.S_ISDIR(status.st_mode):
        raise error(f"{path} is a folder; expected {expected}. Name a file.")
    if not stat.S_ISREG(status.st_mode):
        raise error(f"{path} is not a regular file (a pipe or a device); expected {expected}. Copy it to a file first.")
    if not readable:
        raise error(f"{path} cannot be read: Permission denied. Check its permissions.")
    if most is not None and status.st_size > most:
        raise error(f"{path} has {status.st_size} bytes, which is more than the {most} that {expected} may have.")
    return status.st_size


def exists(path: str | Path) -> bool:
    """Whether there is a file or folder of this name; InputError if that cannot be determined."""
    try:
        return _is_there(Path(path))
    except OSError as failure:
        raise InputError(f"{path} cannot be read: {failure.strerror}. Check the name and the permissions.") from failure


def _is_there(path: Path) -> bool:
    """As ``path.exists()``, which in Python 3.14 takes a folder that may not be searched for one without the file."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the name
        return False
    except OSError as failure:
        if failure.errno in (errno.ELOOP, errno.EBADF):
            return False
        raise
    return True


@contextmanager
def reading(
    path: str | Path,
    expected: str,
    *,
    most: int | None = None,
    remedy: str = "Fetch or make it again.",
    error: type[A2LPError] = FeatureFileError,
) -> Iterator[int]:
    """Check a file, yield its size, and turn any exception of a parser into one error that names the file.

    The parameters are those of ``check_file``; ``remedy`` ends the message about a damaged file.
    """
    size = check_file(path, expected, most=most, error=error)
    try:
        yield size
    except InputError as failure:
        raise error(f"{path}: {failure}") from failure
    except A2LPError:
        raise
    # damaged files make parsers raise almost anything: zlib.error, struct.error, RecursionError, ...
    except Exception as failure:
        # a damaged archive can make Python seek to an offset that no file has: an invalid argument
        if isinstance(failure, OSError) and failure.strerror and failure.errno != errno.EINVAL:
            raise error(f"{path} cannot be read: {failure.strerror}. Check its permissions.") from failure
        raise error(
            f"{path} cannot be read as {expected}; it is something else, or cut short or damaged ({reason(failure)}). "
            f"{remedy}"
        ) from failure


def reason(failure: BaseException) -> str:
    """The type of an exception and the beginning of its text, for a message."""
    text = " ".join(str(failure).split())[:160].rstrip(".")
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


def read_text(path: str | Path, expected: str, error: type[A2LPError] = FeatureFileError) -> str:
    """The content of a UTF-8 text file, with or without a byte-order mark."""
    with reading(path, expected, most=TEXT_BYTES, error=error):
        return Path(path).read_bytes().decode("utf-8-sig")  # line ends as they are: they may be inside cells


def read_json(path: str | Path, expected: str) -> Any:
    """The content of a JSON file; see ``parse_json`` for its limits."""
    with reading(path, expected, most=TEXT_BYTES):
        return parse_json(Path(path).read_bytes(), "the file")


def parse_json(text: Any, what: str) -> Any:
    """JSON text as Python values: lists and objects at most 64 levels deep, finite numbers, at most 100 digits.

    ``what`` names the text in error messages.
    """

    def whole(digits: str) -> int:
        if len(digits) > _DIGITS:
            raise ValueError(f"a number of {len(digits)} digits; at most {_DIGITS} are read")
        return int(digits)

    def finite(number: str) -> float:
        if not math.isfinite(value := float(number)):
            raise ValueError(f"the number {shown(number)} is not finite")
        return value

    try:
        values = json.loads(text, parse_int=whole, parse_float=finite, parse_constant=finite)
        level, depth = [values], 0
        while parents := [each for each in level if isinstance(each, dict | list)]:
            level = [child for each in parents for child in (each.values() if isinstance(each, dict) else each)]
            depth += 1
            if depth > _JSON_DEPTH:
                raise RecursionError
    except RecursionError as error:
        raise InputError(f"{what} nests values more than {_JSON_DEPTH} levels deep. Make it again.") from error
    except (TypeError, ValueError) as error:
        found = shown(text[:100]) if isinstance(text, str | bytes) else f"a {type(text).__name__}"
        raise InputError(f"{what} must be JSON, found {found} ({reason(error)}). Make it again.") from error
    return values


# ---- writing ------------------------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a unique temporary name beside ``path`` and rename it at the end.

    Temporary files of processes that were killed while they wrote ``path`` are removed.
    """
    _remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: str | Path, remedy: str = "", error: type[A2LPError] = InputError) -> Iterator[None]:
    """Turn an OSError into the error that a file cannot be written."""
    try:
        yield
    except A2LPError:
        raise
    except OSError as failure:
        reason = failure.strerror or str(failure) or type(failure).__name__
        remedy = remedy or "Check the folder's permissions and its space."
        raise error(f"{path} cannot be written ({reason}). {remedy}") from failure


def write_text(path: Path, text: str, remedy: str = "") -> None:
    """Write a text file; readers see all of it or nothing."""
    with writing(path, remedy), replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def check_target(path: str | Path, suffixes: Sequence[str], what: str, *, force: bool = False) -> None:
    """Refuse a file name that could not be written at the end of a computation.

    ``suffixes`` are the extensions that are allowed (all if it is empty), ``what`` names the content in messages, and
    ``force`` allows an existing file to be replaced.
    """
    path = Path(path)
    with writing(path):  # a name that is too long, or a folder that may not be searched
        there = _is_there(path)
        if path.is_dir():
            raise InputError(f"{path} is a folder; expected the name of a file to write. Choose another name.")
        if suffixes and path.suffix.lower() not in suffixes:
            raise InputError(f"{path} {extension(path)}; {what} is written as {' or '.join(suffixes)}. Rename it.")
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no folder {path.parent}. Create it first.")
        if there and not force:
            raise InputError(
                f"{path} exists already. Choose another name, or replace it with --force (in Python: force=True)."
            )


def extension(path: Path) -> str:
    """How a file's name ends, for a message about it."""
    return f"has the extension {path.suffix!r}" if path.suffix else "has no extension"


def cache_folder() -> Path:
    """The folder that ``A2LP_CACHE`` names, else ``a2lp`` where this system keeps caches."""
    if chosen := os.environ.get("A2LP_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "a2lp" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "a2lp"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "a2lp"


def _remove_leftovers(path: Path) -> None:
    if os.name != "posix":  # elsewhere, asking whether a process is alive could end it
        return
    try:
        names = os.listdir(path.parent)  # noqa: PTH208  iterdir makes a Path for each name, maybe a million
    except OSError:
        return
    start = f".{path.name}."
    for name in names:
        process = name.startswith(start) and re.fullmatch(r"([0-9]+)-[0-9a-f]{8}\.tmp", name[len(start) :])
        if process:
            try:
                os.kill(int(process[1]), 0)
            except (ProcessLookupError, OverflowError):
                (path.parent / name).unlink(missing_ok=True)
            except PermissionError:  # alive, another user's
                pass

"""``load`` and ``save``: from a name or a path to a ``FeatureSet``, and back to a file.

Whatever is wrong with a file leaves here as one error: where it is, what was expected, what was found.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from a2lp.errors import FeatureFileError, InputError, MissingExtraError, UnknownNameError
from a2lp.features.bundled import BUNDLED
from a2lp.features.common import Fields
from a2lp.features.numpy_files import read_npy, read_npz, write_npy, write_npz
from a2lp.features.parquet_files import read_parquet, write_parquet
from a2lp.features.safetensors_files import read_safetensors, write_safetensors
from a2lp.features.sets import FeatureSet
from a2lp.features.unpickle import read_pickle


@dataclass(frozen=True)
class Format:
    """What an extension stands for.

    Attributes
    ----------
    what : str
        The kind of file, for messages.
    begins : bytes
        A pattern of its first bytes.
    read, write : callable
        ``write`` is None for what is only read.
    beside : tuple of str
        Extensions of further files that belong to it.
    """

    what: str
    begins: bytes
    read: Callable[[Path], Fields]
    write: Callable[[FeatureSet, Path], None] | None
    beside: tuple[str, ...] = ()


_PICKLE = Format(
    # protocols 2 to 5 begin with a mark; 0 and 1 with the dict itself
    "a pickled dict {class: vectors}",
    rb"\x80[\x02-\x05]|\(d|\}[q(]|ccollections",
    read_pickle,
    None,
)

FORMATS: dict[str, Format] = {
    ".npz": Format("a NumPy archive (.npz)", rb"PK[\x03\x05]", read_npz, write_npz),
    ".npy": Format("a NumPy array (.npy)", rb"\x93NUMPY", read_npy, write_npy, (".csv", ".about.json")),
    ".safetensors": Format("a safetensors file", rb".{8}\{", read_safetensors, write_safetensors),
    ".parquet": Format("a Parquet table", rb"PAR1", read_parquet, write_parquet),
    ".plk": _PICKLE,
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
}

_OTHER_BEGINNINGS = {
    rb"\x89HDF": "an HDF5 file",
    rb"\x1f\x8b": "a gzip file",
    rb"version https://git-lfs": "a Git LFS pointer, whose file `git lfs pull` fetches",
}


def load(source: str | Path) -> FeatureSet:
    """Load a bundled set by its name, or a feature file by its path.

    Parameters
    ----------
    source : str or Path
        A name that ``bundled()`` lists, or a file: .npz, .npy (with its .csv), .safetensors, .parquet, or
        a pickle of ``{class: vectors}`` (.plk, .pkl, .pickle), which is read without running what it says.

    Returns
    -------
    FeatureSet
        Its name is the bundled name, or the file's without extension.

    Raises
    ------
    FeatureFileError
        For a file that is not what it should be.
    UnknownNameError
        For a name that is neither bundled nor a file.
    """
    if isinstance(source, str) and source in BUNDLED:
        return BUNDLED[source].load()
    path = Path(source)
    try:
        kind = _existing(path)
        _check_beginning(path, kind)
        return FeatureSet(**kind.read(path), name=path.stem)
    except (FeatureFileError, MissingExtraError, UnknownNameError):
        raise
    except InputError as error:
        raise FeatureFileError(f"{path}: {error}") from error
    # On a damaged file, parsers raise whatever they stumble over: zlib.error, struct.error, KeyError, ...
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise FeatureFileError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error
        raise FeatureFileError(
            f"{path} cannot be read: expected {_kind(path).what}, found one that is cut short or damaged "
            f"({_reason(error)}). Fetch or make it again."
        ) from error


def save(features: FeatureSet, path: str | Path, force: bool = False) -> None:
    """Write a feature file of the kind that its extension names.

    Parameters
    ----------
    features : FeatureSet
        What to write; nothing is lost or rounded.
    path : str or Path
        .npz, .npy (with .csv and .about.json beside it), .safetensors or .parquet.
    force : bool
        Whether files that are already there are replaced.
    """
    path = Path(path)
    kind = _kind(path)
    if kind.write is None:
        writable = ", ".join(suffix for suffix, other in FORMATS.items() if other.write)
        raise FeatureFileError(
            f"{path}: {path.suffix} files are read, never written: opening a pickle can run code, so it is "
            f"no format to exchange data in. Write one of {writable} instead."
        )
    try:
        if not path.parent.is_dir():
            raise FeatureFileError(f"{path}: there is no directory {path.parent}. Create it first.")
        for target in (path, *(path.with_suffix(suffix) for suffix in kind.beside)):
            _check_target(target, force)
        kind.write(features, path)
    except (FeatureFileError, MissingExtraError):
        raise
    except Exception as error:  # each library has its own for a full disk or a directory without permission
        raise FeatureFileError(
            f"{path} cannot be written ({_reason(error)}). Check the directory's permissions and its space."
        ) from error


def _existing(path: Path) -> Format:
    """The format of a path, once it is known to be a regular file."""
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if p.suffix.lower() in FORMATS)
        hint = f"Name a file in it, such as {inside[0]}." if inside else "There is no such file in it."
        raise FeatureFileError(f"{path} is a directory; expected a feature file ({_extensions()}). {hint}")
    if not path.exists() and path.suffix.lower() not in FORMATS:
        raise UnknownNameError("feature set, and no such file:", str(path), BUNDLED)
    if not path.exists():
        raise FeatureFileError(
            f"{path} does not exist. Give the path of a feature file ({_extensions()}) or the name of a "
            f"bundled set: {', '.join(BUNDLED)}."
        )
    if not path.is_file():
        raise FeatureFileError(f"{path} is not a regular file; expected a feature file ({_extensions()}).")
    return _kind(path)


def _kind(path: Path) -> Format:
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        hint = " A .csv belongs to the .npy beside it: name that one." if path.suffix == ".csv" else ""
        raise FeatureFileError(
            f"{path} has the extension {path.suffix!r}; expected one of {_extensions()}.{hint}"
        ) from None


def _check_beginning(path: Path, kind: Format) -> None:
    with path.open("rb") as file:
        head = file.read(32)
    if not head:
        raise FeatureFileError(f"{path} is empty (0 bytes); expected {kind.what}. Fetch or make it again.")
    if re.match(kind.begins, head, re.DOTALL):
        return
    known = _OTHER_BEGINNINGS | {other.begins: other.what for other in FORMATS.values()}
    found = (what for begins, what in known.items() if re.match(begins, head, re.DOTALL))
    raise FeatureFileError(
        f"{path}: expected {kind.what}, found {next(found, f'something that begins with {head[:8]!r}')}. If "
        "only the name is wrong, rename it; else fetch or make the file again."
    )


def _check_target(path: Path, force: bool) -> None:
    if path.is_dir():
        raise FeatureFileError(f"{path} is a directory; expected the name of a file to write.")
    if path.exists() and not force:
        raise FeatureFileError(
            f"{path} exists already. Choose another name, or replace it with --force (in Python: force=True)."
        )


def _extensions() -> str:
    return ", ".join(FORMATS)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

"""Loading feature sets by name or path, and saving them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from a2lp.errors import A2LPError, FeatureFileError, UnknownNameError
from a2lp.features.bundled import BUNDLED, load_bundled
from a2lp.features.feature_set import FeatureSet
from a2lp.features.numpy_files import TEXT_END, Fields, npy_side_files, read_npy, read_npz, write_npy, write_npz
from a2lp.features.parquet_files import read_parquet, write_parquet
from a2lp.features.parts import is_parts, read_parts
from a2lp.features.pickle_files import read_pickle
from a2lp.features.safetensors_files import read_safetensors, write_safetensors
from a2lp.files import check_file, check_target, exists, extension, reading, reason


@dataclass(frozen=True)
class Format:
    """A format of feature files."""

    what: str  # the kind of file, for messages
    begins: bytes  # a pattern of its first bytes
    read: Callable[[Path], Fields]
    write: Callable[[FeatureSet, Path], None] | None = None  # None for a format that is only read


# protocols 2 to 5 begin with a mark; 0 and 1 with the dict itself
_PICKLE = Format("a pickled dict {class: vectors}", rb"\x80[\x02-\x05]|\(d|\}[q(]|ccollections", read_pickle)

FORMATS: dict[str, Format] = {
    ".npz": Format("a NumPy archive (.npz)", rb"PK[\x03\x05]", read_npz, write_npz),
    ".npy": Format("a NumPy array (.npy)", rb"\x93NUMPY", read_npy, write_npy),
    ".safetensors": Format("a safetensors file", rb".{8}\{", read_safetensors, write_safetensors),
    ".parquet": Format("a Parquet table", rb"PAR1", read_parquet, write_parquet),
    ".plk": _PICKLE,
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
}
_EXTENSIONS = ", ".join(FORMATS)
_WRITABLE = [suffix for suffix, kind in FORMATS.items() if kind.write is not None]

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
        a pickle of ``{class: vectors}`` (.plk, .pkl, .pickle), which is read without running any code in it. Or a
        folder of parts that ``a2lp embed`` wrote, whose vectors stay on disk.

    Returns
    -------
    FeatureSet
        Named like the bundled set, or like the file without its extension.

    Examples
    --------
    >>> import a2lp
    >>> a2lp.load("cub")
    FeatureSet('cub': 2953 x 640 float16, 50 classes)
    """
    if isinstance(source, str) and source in BUNDLED:
        return load_bundled(source)
    path = Path(source)
    if is_parts(path):
        return FeatureSet(**read_parts(path), name=path.resolve().name)
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise _unknown(path)
    check_file(path, f"{kind.what} or the name of a bundled set ({', '.join(BUNDLED)})")
    with reading(path, kind.what):
        _check_beginning(path, kind)
        return FeatureSet(**kind.read(path), name=path.stem)


def save(features: FeatureSet, path: str | Path, force: bool = False) -> None:
    """Write a feature file without losing or rounding anything.

    Parameters
    ----------
    features : FeatureSet
    path : str or Path
        .npz, .npy (with .csv, .about.json and .text.npy beside it), .safetensors or .parquet.
    force : bool
        Whether existing files are replaced.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from a2lp.features import FeatureSet, load, save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(FeatureSet(np.eye(3), [0, 1, 1], ["auk", "wren"]), f"{folder}/mine.npz")
    ...     load(f"{folder}/mine.npz").classes
    ('auk', 'wren')
    """
    path = Path(path)
    kind = FORMATS.get(path.suffix.lower())
    if kind is not None and kind.write is None:
        raise FeatureFileError(
            f"{path}: {path.suffix} files are read, never written: opening a pickle can run code, so it is no format "
            f"to exchange data in. Write one of {', '.join(_WRITABLE)} instead."
        )
    check_target(path, _WRITABLE, "a feature file", force=force)
    assert kind is not None and kind.write is not None
    side_files = npy_side_files(features, path) if kind.write is write_npy else {}
    for side, text in side_files.items():
        # an interrupted run may have left one with the same content
        if not (side.is_file() and side.read_bytes() == text.encode()):
            check_target(side, (), "a file beside the features", force=force)
    if side_files and features.text is not None:
        check_target(path.with_suffix(TEXT_END), (), "a file beside the features", force=force)
    try:
        kind.write(features, path)
    except A2LPError:
        raise
    except Exception as error:  # each library has its own for a full disk or a folder without permission
        remedy = "Check the folder's permissions and its space."
        raise FeatureFileError(f"{path} cannot be written ({reason(error)}). {remedy}") from error


def _unknown(path: Path) -> A2LPError:
    """The error for a path whose extension belongs to no format."""
    if not exists(path):
        return UnknownNameError("feature set, and no such file:", str(path), BUNDLED)
    if path.is_dir():
        inside = sorted(file.name for file in path.glob("*") if file.suffix.lower() in FORMATS)
        hint = f"Name one in it, such as {inside[0]}." if inside else "There is none in it."
        return FeatureFileError(f"{path} is a folder; expected a feature file ({_EXTENSIONS}). {hint}")
    hint = " A .csv belongs to the .npy beside it: name that one." if path.suffix == ".csv" else ""
    return FeatureFileError(f"{path} {extension(path)}; expected a file, {_EXTENSIONS}.{hint}")


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

"""Examples in folders named by class: the user's own, and folders that a2lp has sorted images into."""

from __future__ import annotations

import csv
import hashlib
import io
import warnings
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from a2lp.checks import listed
from a2lp.errors import A2LPWarning, InputError
from a2lp.files import exists, read_text
from a2lp.labelling.tables import EXPECTED, unescaped

# folders of images that have no label yet, beside those of the classes
UNLABELLED = frozenset({"unlabelled", "unlabeled"})
SORTED_TABLE = "labels.csv"  # in a folder that ``a2lp classify`` has sorted images into


def class_folders(folder: Path) -> list[tuple[Path, str]]:
    """The images in the class folders of a folder, each with its class, without those that a2lp has put there."""
    from a2lp.images.datasets.folders import image_files

    inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    classes = [path for path in inside if path.name.lower() not in UNLABELLED]
    if not classes:
        raise InputError(
            f"{folder} holds no folders; as labels, it must hold one for each class, such as {folder / 'cat'}, with "
            "examples in it. Or give a table with the columns path,label."
        )
    images = {path: image_files(folder, path).images for path in classes}
    empty = [path.name for path, files in images.items() if not files]
    predicted = {place for place, given in sorted_places(folder).items() if given == "false"}
    if empty and not predicted:
        raise InputError(
            f"{folder}: there is no image of the class {listed(empty, 5)}. Put at least one into each class folder, or "
            "remove the folder."
        )
    files = [(file, path.name) for path, files in images.items() for file in files]
    if unmoved := [file for file, _ in files if file in predicted]:
        warnings.warn(
            f"{folder}: {len(unmoved)} images are where a2lp has put them and were not used as your labels. Those that "
            "you have moved, and the labels that you had given, count.",
            A2LPWarning,
            stacklevel=2,
        )
    return [(folder / file, name) for file, name in files if file not in predicted]


def sorted_places(folder: Path) -> dict[str, str | None]:
    """The paths under a folder where ``a2lp classify`` has put images, each with its ``given`` in the table."""
    if not exists(folder / SORTED_TABLE):
        return {}
    text = read_text(folder / SORTED_TABLE, EXPECTED, InputError)
    rows = csv.DictReader(io.StringIO(text, newline=""))
    return {unescaped(row.get("place") or ""): row.get("given") for row in rows}


def by_content(paths: Sequence[Path], sizes: set[int]) -> dict[str, list[int]]:
    """The rows of files that have one of these sizes, by their content; other files are not read."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, path in enumerate(paths if sizes else ()):
        if path.stat().st_size in sizes:
            rows[digest(path)].append(row)
    return rows


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()

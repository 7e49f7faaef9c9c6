"""Images in a folder for each class, by copy or by link, with a table of all labels beside them.

The folder is built under a hidden name and renamed at the end. A run that is killed leaves the hidden folder, and the
next run continues with it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from a2lp.checks import listed, shown
from a2lp.errors import InputError
from a2lp.files import check_target, exists, writing
from a2lp.labelling.class_folders import SORTED_TABLE, sorted_places

if TYPE_CHECKING:
    from a2lp.labelling.labelled import Labelled

UNLABELLED = "unlabelled"


def check(
    out: Path, *, force: bool, classes: Sequence[str], paths: Sequence[Path] | None, source: Path | None = None
) -> None:
    """Refuse what cannot be written, and what would replace anything that this module did not write."""
    if paths is None:
        raise InputError(
            f"{out}: folders for each class are made of images, and the source is a feature file. Write a table "
            f"instead, such as {out}.csv."
        )
    for name in classes:
        taken = name.lower() in ("", UNLABELLED, SORTED_TABLE)
        if taken or name.startswith(".") or any(sign in name for sign in "/\\\0") or len(os.fsencode(name)) > 200:
            raise InputError(
                f"the class {shown(name)} cannot be the name of a folder in {out} (no slashes, no dot at its "
                f"beginning, at most 200 bytes, not {UNLABELLED!r} or {SORTED_TABLE!r}). Rename it, or write a table, "
                f"such as {out}.csv."
            )
    if out.name in ("", ".."):
        raise InputError(f"{out} is a folder that programs work in. Name a new one, such as {out / 'sorted'}.")
    real = Path(os.path.realpath(out))
    if source is not None and real.is_relative_to(os.path.realpath(source)):
        raise InputError(
            f"{out} lies in the source {source}, whose images would then be found twice. Choose a folder outside of it."
        )
    if not exists(out):
        check_target(out, (), "labels")
        return
    if any(Path(os.path.realpath(path)).is_relative_to(real) for path in paths):
        raise InputError(f"{out} holds images of the source. Choose another folder.")
    with writing(out):
        _check_replaced(out, force)


def write(
    result: Labelled, out: Path, paths: Sequence[Path], link: bool, table: Callable[[Labelled, Path], None]
) -> None:
    """Make the folder; images without a label go to ``unlabelled``, and all labels into ``labels.csv``."""
    partial, old = (out.with_name(f".{out.name}.{state}") for state in ("partial", "replaced"))
    labels = [UNLABELLED if label is None else str(label) for label in result.table["label"]]
    files = [f"{label}/{place}" for label, place in zip(labels, _places(paths), strict=True)]
    partial.mkdir(exist_ok=True)
    _remove_others(partial, set(files))
    for file, path in zip(files, paths, strict=True):
        _put(partial / file, path, link)
    table(result.with_column("place", files), partial / SORTED_TABLE)
    if out.exists():
        shutil.rmtree(old, ignore_errors=True)  # left by a run that was killed before it could remove it
        out.replace(old)
    partial.replace(out)
    shutil.rmtree(old, ignore_errors=True)


def _check_replaced(out: Path, force: bool) -> None:
    if out.is_dir() and not any(out.iterdir()):
        return
    if not force:
        raise InputError(f"{out} exists already. Choose another name, or replace it with --force.")
    if not out.is_dir():
        raise InputError(f"{out} is a file; expected a folder to write. Choose another name.")
    others = sorted(_files(out) - {SORTED_TABLE, *sorted_places(out)})
    if others:
        raise InputError(
            f"{out} holds files that a2lp did not put there, or that were moved since: {listed(others, 5)}. It is not "
            "replaced, not even with --force. Choose another name, or move it away."
        )


def _files(folder: Path) -> set[str]:
    """All files under a folder, as relative paths; links are not followed."""
    found = set()
    for top, folders, files in os.walk(folder):
        links = [name for name in folders if Path(top, name).is_symlink()]
        found |= {Path(top, name).relative_to(folder).as_posix() for name in [*files, *links]}
    return found


def _places(paths: Sequence[Path]) -> list[str]:
    """The place of each image in its class folder: its name where all names differ, else its path as well."""
    names = [path.name for path in paths]
    if len({name.lower() for name in names}) == len(names):
        return names
    whole = [Path(os.path.normpath(Path.cwd() / path)) for path in paths]
    common = os.path.commonpath([path.parent for path in whole])
    return [path.relative_to(common).as_posix() for path in whole]


def _remove_others(folder: Path, wanted: set[str]) -> None:
    """Remove what a killed run left unfinished, or put elsewhere because it had other labels."""
    for file in _files(folder) - wanted:
        (folder / file).unlink()
    for top, _, _ in os.walk(folder, topdown=False):
        if Path(top) != folder and not any(Path(top).iterdir()):
            Path(top).rmdir()


def _put(target: Path, source: Path, link: bool) -> None:
    """Copy or link an image, unless that was done before."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")
    if link:
        goal = os.path.realpath(source)
        if target.is_symlink() and str(target.readlink()) == goal:
            return
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(goal)
    else:
        if target.is_file() and not target.is_symlink() and _same(target, source):
            return
        shutil.copy2(source, temporary)
    temporary.replace(target)


def _same(copy: Path, source: Path) -> bool:
    one, other = copy.stat(), source.stat()
    return one.st_size == other.st_size and one.st_mtime == other.st_mtime

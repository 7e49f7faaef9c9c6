"""Writing labels: tables, Label Studio's tasks, or folders of images named by class (``folders``).

Nothing is replaced unless asked for, and everything appears whole or not at all: it is written under a temporary name
beside the target, and renamed.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from a2lp._version import __version__
from a2lp.errors import InputError
from a2lp.features.parquet_files import arrow
from a2lp.files import check_target, extension, replacing, writing
from a2lp.labelling import folders
from a2lp.labelling.labelled import Labelled
from a2lp.labelling.tables import escaped

_WRITING = "writing .parquet files"


def write_csv(result: Labelled, path: Path) -> None:
    """One line for each point, under a line of column names; text that could be a formula gets an apostrophe."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(result.table)
        writer.writerows([_cell(value) for value in row.values()] for row in result.rows())


def write_parquet(result: Labelled, path: Path) -> None:
    """One row for each point."""
    pyarrow = arrow(_WRITING)
    pyarrow.parquet.write_table(pyarrow.table({name: list(column) for name, column in result.table.items()}), path)


def write_jsonl(result: Labelled, path: Path) -> None:
    """One JSON object a line for each point."""
    with path.open("w", encoding="utf-8", newline="") as file:
        for row in result.rows():
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_label_studio(result: Labelled, path: Path) -> None:
    """Tasks of Label Studio: labels of the user as annotations, the others as predictions with their scores.

    The tags of the labelling interface are ``<Image name="image" value="$image"/>`` and ``<Choices name="choice"
    toName="image">``; images are served from the folder that ``LOCAL_FILES_DOCUMENT_ROOT`` names.
    """
    tasks = []
    for row in result.rows():
        choice = {"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": [row["label"]]}}
        data = row | {"image": f"/data/local-files/?d={quote(str(row[result.key]))}"}
        task: dict[str, Any] = {"data": data, "annotations": [], "predictions": []}
        if row["given"]:
            task["annotations"] = [{"result": [choice]}]
        elif row["label"] is not None:
            version = f"a2lp {__version__} {result.method}"
            task["predictions"] = [{"model_version": version, "score": row["confidence"], "result": [choice]}]
        tasks.append(task)
    path.write_text(json.dumps(tasks, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


TABLES: dict[str, Callable[[Labelled, Path], None]] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
    ".jsonl": write_jsonl,
    ".json": write_label_studio,
}


def check_output(
    out: str | Path,
    *,
    force: bool = False,
    classes: Sequence[str] = (),
    link: bool = False,
    paths: Sequence[Path] | None = None,
    source: Path | None = None,
) -> None:
    """Refuse at the start what would be refused at the end.

    Parameters
    ----------
    out : str or Path
        A file, whose extension names its format, or a folder to make.
    force : bool
        Whether it may exist already, to be replaced.
    classes : sequence of str
        The classes, which name the folders.
    link : bool
        Whether folders get symbolic links to the images instead of copies.
    paths : sequence of Path, optional
        The images that are put into folders.
    source : Path, optional
        The folder of the images; the output must not lie in it.
    """
    path = Path(out)
    if is_folder(out):
        folders.check(path, force=force, classes=classes, paths=paths, source=source)
        return
    if path.suffix.lower() not in TABLES:
        raise InputError(
            f"{path} {extension(path)}; labels are written as {', '.join(TABLES)} (Label Studio), or "
            f"into a folder for each class: for that, end the name with a slash, {path}{os.sep}"
        )
    if link:
        raise InputError(
            f"{path} is a table, and only folders of images can have links. Leave out link (--link), or name a folder "
            "to write to."
        )
    if path.suffix.lower() == ".parquet":
        arrow(_WRITING)
    check_target(path, (), "labels", force=force)


def write_output(
    result: Labelled,
    out: str | Path,
    *,
    force: bool = False,
    link: bool = False,
    paths: Sequence[Path] | None = None,
    source: Path | None = None,
) -> None:
    """Write labels in the format that the name of the output implies; see ``check_output``.

    Parameters
    ----------
    result : Labelled
    out : str or Path
        A .csv, .parquet, .jsonl or .json file (Label Studio's tasks), or a folder.
    force : bool
        Whether an existing output is replaced.
    link : bool
        Whether folders get symbolic links to the images instead of copies.
    paths, source
        As in ``check_output``.
    """
    path = Path(out)
    classes = [str(name) for name in result.classes]
    check_output(out, force=force, classes=classes, link=link, paths=paths, source=source)
    with writing(path):
        if is_folder(out):
            folders.write(result, path, paths or (), link, write_csv)
        else:
            with replacing(path) as temporary:
                TABLES[path.suffix.lower()](result, temporary)


def is_folder(out: str | Path) -> bool:
    """Whether a name is that of a folder: one without extension, or with a slash at its end."""
    return not Path(out).suffix or str(out).endswith(("/", os.sep))


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4f}" if isinstance(value, float) else escaped(value)

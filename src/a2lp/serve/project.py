"""The folder of a project: the log, the settings, thumbnails and caches, beside what is labelled.

It can be read by people and moved with the source: points are named by their keys, never by absolute paths. Everything
but ``labels.jsonl`` and ``settings.json`` can be deleted at any time and is made again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from a2lp.errors import InputError
from a2lp.files import cache_folder, parse_json, read_text, write_text, writing
from a2lp.serve.log import Lock, Log

DEMO = "digits"
_ABOUT = """This folder was made by `a2lp serve`. It belongs to {source}, and can be moved with it.

labels.jsonl    every label that you gave, one command a line; nothing in it is ever changed, only added
settings.json   settings of the page
curve.jsonl     the estimated accuracy after each answer
sorted/         links to the images, in a folder for each class, once you have asked for them
cache/          vectors and their graph; can be deleted
thumbnails/     small pictures; can be deleted
"""
_MOST_SETTINGS = 1 << 16


class Project:
    """An open project, locked for this process.

    Parameters
    ----------
    folder : Path
        It is made if it does not exist.
    source : str
        What is labelled, for the folder's README.
    """

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        with writing(folder, "Choose another folder with --project DIR."):
            if folder.is_file():
                raise InputError(f"{folder} is a file; a project is a folder. Choose another with --project DIR.")
            if folder.is_dir() and any(folder.iterdir()) and not (folder / "labels.jsonl").exists():
                raise InputError(
                    f"{folder} holds other things and no labels.jsonl, so it is no project. Choose another folder with "
                    "--project DIR."
                )
            self.cache.mkdir(parents=True, exist_ok=True)
            self.thumbnails.mkdir(exist_ok=True)
        self.lock = Lock(folder / "lock", f"process {os.getpid()}")
        try:
            self.log = Log(folder / "labels.jsonl")
            write_text(folder / "README.txt", _ABOUT.format(source=source))
            self.settings: dict[str, Any] = self._read_settings()
            self.curve = self._read_curve()
        except BaseException:
            self.lock.release()
            raise

    @property
    def cache(self) -> Path:
        """What is computed from the source alone."""
        return self.folder / "cache"

    @property
    def thumbnails(self) -> Path:
        """Small pictures, by the content of the image."""
        return self.folder / "thumbnails"

    def save_settings(self, changes: dict[str, Any]) -> None:
        """Replace some of the settings, by name."""
        settings = self.settings | changes
        text = json.dumps(settings, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
        if len(text) > _MOST_SETTINGS:
            raise InputError(f"the settings have {len(text)} characters; at most {_MOST_SETTINGS} are kept.")
        write_text(self.folder / "settings.json", text)
        self.settings = settings

    def add_to_curve(self, point: list[float]) -> None:
        """Remember the estimated accuracy at some number of labels."""
        self.curve = [known for known in self.curve if known[0] != point[0]] + [point]
        self.curve.sort()
        with writing(self.folder), (self.folder / "curve.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")

    def close(self) -> None:
        """Close the log and let others write."""
        self.log.close()
        self.lock.release()

    def _read_settings(self) -> dict[str, Any]:
        path = self.folder / "settings.json"
        if not path.exists():
            return {}
        found = parse_json(read_text(path, "settings", InputError), str(path))
        if not isinstance(found, dict):
            raise InputError(f"{path} must be a JSON object. Correct it, or delete it.")
        return found

    def _read_curve(self) -> list[list[float]]:
        path, points = self.folder / "curve.jsonl", {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                labels, *values = parse_json(line, str(path))
                points[int(labels)] = [int(labels), *map(float, values)]
            except (InputError, TypeError, ValueError):  # cut short by a kill; it is a picture, no label
                continue
        return [points[labels] for labels in sorted(points)]


def usual_folder(source: str) -> Path:
    """The folder of a source's project if the user names none: beside it, with ``.a2lp`` added to its name."""
    if source == DEMO:
        return cache_folder() / "demo.a2lp"
    path = Path(source)
    if not path.exists():
        raise InputError(
            f"there is no file or folder {source!r} here ({Path.cwd()}), beside which its project could lie. Correct "
            "the name, or, for a bundled set, choose a place with --project DIR."
        )
    path = Path(os.path.normpath(Path.cwd() / path))  # a link keeps its own name
    return path.with_name(path.name + ".a2lp")

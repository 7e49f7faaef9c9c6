"""The append-only log of a project: every command of the user, one JSON object a line.

A line is written by one ``write`` and synced to disk before the command is acknowledged. A line that a kill has cut
short was never acknowledged, and is dropped when the log is opened again. Only one process may write: it holds a lock
that the system releases when the process ends, however it ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from a2lp.errors import InputError
from a2lp.files import parse_json, writing

Line = dict[str, Any]


class Log:
    """An open log.

    Parameters
    ----------
    path : Path
        The file; it is made if it does not exist, readable by its owner alone.

    Attributes
    ----------
    lines : list of dict
        What is in it; each line's ``seq`` is its place, from 1 on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = []
        self._by_id: dict[str, Line] = {}
        with writing(path):
            new = not path.exists()
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            if new:
                _sync_folder(path.parent)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def append(self, line: Mapping[str, Any]) -> Line:
        """Write a line, with the next ``seq``, to the disk; a line whose ``id`` is known is not written again."""
        if (known := self._by_id.get(line["id"])) is not None:
            return known
        made = {"seq": len(self.lines) + 1, **line}
        data = (json.dumps(made, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n").encode()
        end = os.fstat(self._file).st_size
        try:
            if os.write(self._file, data) != len(data):
                raise OSError(28, "No space left on device")
            os.fsync(self._file)
        except OSError as failure:
            os.ftruncate(self._file, end)  # what was not acknowledged must not come back
            raise InputError(
                f"{self.path} cannot be written ({failure.strerror}), so the command was not saved. Make room on the "
                "disk, then try again."
            ) from failure
        self._add(made)
        return made

    def known(self, id: str) -> Line | None:
        """The line of a command that was written before."""
        return self._by_id.get(id)

    def close(self) -> None:
        """Close the file; nothing is pending."""
        os.close(self._file)

    def _add(self, line: Line) -> None:
        self.lines.append(line)
        self._by_id[line["id"]] = line

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(self._file, whole)
        for number, text in enumerate(data[:whole].splitlines(), start=1):
            line = _parsed(self.path, number, text)
            self._add(line)


class Lock:
    """The right to write to a project, held until it is released or the process ends.

    Parameters
    ----------
    path : Path
        The lock file; what is in it tells people who holds it, and decides nothing.
    about : str
        What to write into it.
    """

    def __init__(self, path: Path, about: str) -> None:
        with writing(path):
            self._file: IO[str] = path.open("a+", encoding="utf-8")
        if not _lock(self._file):
            self._file.seek(0)
            holder = " ".join(self._file.read().split())
            self._file.close()
            raise InputError(
                f"{path.parent} is in use by another server ({holder or 'its address is not known'}). Open that one, "
                "stop it, or choose another folder with --project DIR."
            )
        self.tell(about)

    def tell(self, about: str) -> None:
        """Replace what the lock file says."""
        self._file.truncate(0)
        self._file.write(about + "\n")
        self._file.flush()

    def release(self) -> None:
        """Give the right to write back."""
        self._file.truncate(0)
        self._file.close()


def _sync_folder(folder: Path) -> None:
    """Have the name of a new file on disk, too, where the system can do that."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _lock(file: IO[str]) -> bool:
    """Lock a file for this process; False if another holds it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            file.seek(1 << 30)  # a byte that nobody reads
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _parsed(path: Path, number: int, text: bytes) -> Line:
    try:
        line = parse_json(text.decode(), f"line {number}")
        if not isinstance(line, dict) or line.get("seq") != number:
            raise InputError(f"line {number} does not have the number {number} as its seq.")
        if not isinstance(line.get("op"), str) or not isinstance(line.get("id"), str):
            raise InputError(f"line {number} has no op or no id.")
    except (InputError, UnicodeDecodeError) as failure:
        raise InputError(
            f"{path} is damaged: {failure} Restore the file from a copy, or keep the lines before number {number} only."
        ) from failure
    return line

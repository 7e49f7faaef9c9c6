"""Folders in the user's cache that compiled code is kept in."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

_UNUSED_DAYS = 30


def private_folder(path: Path) -> bool:
    """Make the folder if it is not there; whether this user, and nobody else, can write to it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.stat()
    private = not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)
    return private and os.access(path, os.W_OK | os.X_OK)


def remove_old(paths: Iterable[Path], most: int) -> None:
    """Remove files and folders that were not used for a month, and all but the most recent ones."""

    def last_use(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:  # removed by another process just now
            return 0.0

    for rank, path in enumerate(sorted(paths, key=last_use, reverse=True)):
        if rank >= most or time.time() - last_use(path) > _UNUSED_DAYS * 86400:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

"""Images inside larger files: members of tar archives (WebDataset), and rows of Parquet tables (Hugging Face)."""

from __future__ import annotations

import hashlib
import tarfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.arrays import NDArray
from a2lp.errors import CorruptImageError, DatasetError
from a2lp.features.parquet_files import arrow
from a2lp.files import reading
from a2lp.images.datasets.decode import EXTENSIONS, Pixels, decode
from a2lp.images.datasets.layouts import ImageTable
from a2lp.images.datasets.sources import IMAGE_BYTES

SUFFIXES = (".tar", ".parquet")
_TAR, _PARQUET = "a tar archive of images", "a Parquet table with a column of encoded images"
_GROUPS = 2  # row groups of Parquet tables that are held at a time


@dataclass(frozen=True, eq=False)
class Shards:
    """Encoded images in shards: bytes ``start`` to ``start + size`` of a tar archive, or row ``start`` of a table."""

    paths: Sequence[Path]
    which: NDArray  # the shard of each image
    start: NDArray
    size: NDArray
    files: Sequence[str]
    _groups: OrderedDict[tuple[int, int], Any] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def image(self, row: int) -> Pixels:
        """Decode the image."""
        return decode(self._bytes(row), self.files[row])

    def digest(self, row: int) -> str:
        """SHA-256 of the encoded image."""
        return hashlib.sha256(self._bytes(row)).hexdigest()

    def _bytes(self, row: int) -> bytes:
        shard, start, size = int(self.which[row]), int(self.start[row]), int(self.size[row])
        path = self.paths[shard]
        try:
            if path.suffix == ".parquet":
                return self._cell(shard, start)
            if size > IMAGE_BYTES:
                raise CorruptImageError(self.files[row], f"it has {size} bytes, and at most {IMAGE_BYTES} are read")
            with path.open("rb") as file:
                file.seek(start)
                content = file.read(size)
        except OSError as error:
            if isinstance(error, CorruptImageError):
                raise
            raise CorruptImageError(self.files[row], f"{path}: {error.strerror or error}") from error
        if len(content) < size:
            raise CorruptImageError(self.files[row], f"{path} ends before it")
        return content

    def _cell(self, shard: int, row: int) -> bytes:
        """A row of a Parquet table; the row groups read last are kept."""
        with self._lock:
            table = _table(self.paths[shard])
            group = int(np.searchsorted(table.ends, row, side="right"))
            key = (shard, group)
            if key not in self._groups:
                column = table.file.read_row_group(group, columns=[table.column]).column(0)
                self._groups[key] = column.combine_chunks()
                while len(self._groups) > _GROUPS:
                    self._groups.popitem(last=False)
            self._groups.move_to_end(key)
            first = 0 if group == 0 else int(table.ends[group - 1])
            value = self._groups[key][row - first].as_py()
        return (value["bytes"] if isinstance(value, dict) else value) or b""


def find_shards(paths: Iterable[Path]) -> ImageTable | None:
    """The images of tar archives and Parquet tables; None if there are none."""
    shards = sorted(paths)
    found = [_members(path) if path.suffix == ".tar" else _rows(path) for path in shards]
    names = [f"{path.stem}/{name}" for path, inside in zip(shards, found, strict=True) for name, _, _ in inside]
    if not names:
        return None
    twice, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise DatasetError(
            f"the image {twice} occurs {times} times in {shards[0].parent}. Give shards different names."
        )
    which = np.repeat(np.arange(len(shards)), [len(inside) for inside in found])
    start, size = (np.array([image[i] for inside in found for image in inside], dtype=np.int64) for i in (1, 2))
    return ImageTable(Shards(shards, which, start, size, names), names, None)


def _members(path: Path) -> list[tuple[str, int, int]]:
    """The images of a tar archive: name, first byte and size."""
    remedy = "Decompress a compressed archive first."
    with reading(path, _TAR, remedy=remedy, error=DatasetError), tarfile.open(path, "r:") as archive:
        return [
            (member.name.removeprefix("./"), member.offset_data, member.size)
            for member in archive
            if member.isreg() and not member.issparse() and _is_image(member.name)
        ]


def _is_image(name: str) -> bool:
    last = name.rpartition("/")[2]
    return not last.startswith(".") and last.lower().endswith(EXTENSIONS)


def _rows(path: Path) -> list[tuple[str, int, int]]:
    """The rows of a Parquet table: the path in the image's own record or the number, and the row."""
    with reading(path, _PARQUET, error=DatasetError):
        table = _table(path)
        count = int(table.ends[-1]) if len(table.ends) else 0
        names = [f"{row:06d}" for row in range(count)]
        if table.named:
            given = table.file.read(columns=[f"{table.column}.path"]).column(0).to_pylist()
            given = [None if value is None else value["path"] for value in given]
            if all(given) and len(set(given)) == len(given):
                names = given
        return [(name, row, 0) for row, name in enumerate(names)]


@dataclass(frozen=True)
class _Table:
    """An open Parquet table of images."""

    file: Any
    column: str  # of the encoded images: bytes, or records with `bytes` and `path`
    named: bool
    ends: NDArray  # the row after each row group


_open = threading.local()


def _table(path: Path) -> _Table:
    """The table of a path; the last one of each thread stays open."""
    if getattr(_open, "path", None) != path:
        _open.table, _open.path = _opened(path), path
    found: _Table = _open.table
    return found


def _opened(path: Path) -> _Table:
    pyarrow = arrow("Parquet tables")
    types = pyarrow.types

    def is_bytes(kind: Any) -> bool:
        return kind is not None and bool(types.is_binary(kind) or types.is_large_binary(kind))

    file = pyarrow.parquet.ParquetFile(path)
    groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    for column in file.schema_arrow:
        inner = {child.name: child.type for child in column.type} if types.is_struct(column.type) else {}
        if is_bytes(column.type) or is_bytes(inner.get("bytes")):
            return _Table(file, column.name, "path" in inner, np.cumsum(groups))
    raise DatasetError(
        f"{path} has no column of encoded images; it has {', '.join(file.schema_arrow.names[:10])}. Expected a column "
        "of bytes, or of records with `bytes` and `path`."
    )

"""Sizes that a .parquet file claims for its columns, read from its footer.

``pyarrow`` has them as ``metadata.row_group(i).column(j)``, but that call ends the whole process where one damaged bit
makes the statistics of a column contradict its type: nothing catches the exception of C++. Its other calls raise. The
footer is a record of Thrift's compact protocol; the numbers of fields are those of the format's ``parquet.thrift``.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)  # of 16, 32 and 64 bits
_ROW_GROUPS, _COLUMNS, _META_DATA, _PATH, _N_VALUES, _UNPACKED = 4, 1, 3, 3, 5, 6
_WIDEST = 8  # bytes of a number


def claimed_bytes(path: Path, names: set[str]) -> int:
    """The unpacked size of some columns according to the file's footer."""
    with path.open("rb") as file:
        file.seek(-8, io.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
        file.seek(-8 - size, io.SEEK_END)
        footer = _Thrift(file.read(size)).value(_STRUCT)
    columns = (column[_META_DATA] for group in footer[_ROW_GROUPS] for column in group[_COLUMNS])
    wanted = (column for column in columns if column[_PATH][0].decode() in names)
    # repeated values are stored once with a count, so the stored bytes alone would be misleading
    return sum(max(column[_UNPACKED], _WIDEST * column[_N_VALUES]) for column in wanted)


class _Thrift:
    """Values of Thrift's compact protocol, one after the other; records are dictionaries by number of field."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def bytes(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise ValueError("the footer ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.bytes(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def integer(self) -> int:
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            return self.integer()
        if kind in (_TRUE, _FALSE, _BYTE):  # as an element; a field has its truth in the header
            return self.bytes(1)
        if kind == _DOUBLE:
            return self.bytes(8)
        if kind == _BINARY:
            return self.bytes(self.varint())
        if kind in (_LIST, _SET):
            header = self.bytes(1)[0]
            size = self.varint() if header >> 4 == 15 else header >> 4
            return [self.value(header & 15) for _ in range(size)]
        if kind == _MAP:
            size = self.varint()
            kinds = self.bytes(1)[0] if size else 0
            return [(self.value(kinds >> 4), self.value(kinds & 15)) for _ in range(size)]
        if kind == _STRUCT:
            return self.record()
        raise ValueError(f"the footer has a value of unknown type {kind}")

    def record(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        field = 0
        while header := self.bytes(1)[0]:
            field = field + (header >> 4) if header >> 4 else self.integer()
            kind = header & 15
            fields[field] = kind == _TRUE if kind in (_TRUE, _FALSE) else self.value(kind)
        return fields

"""The report's pictures: as many as fit, those of examples larger than those that only the map shows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from a2lp.arrays import chunks
from a2lp.cores import map_on_cores
from a2lp.labelling.pages import thumbnail
from a2lp.labelling.sources import Progress

_SIDES = 224, 72  # pixels of pictures of examples, and of the others
_BYTES = 8 << 20, 12 << 20  # of those of examples, and of all
_AT_ONCE = 32  # pictures between two looks at the size


def make_pictures(
    paths: Sequence[Path] | None, examples: Sequence[int], rows: Sequence[int], progress: Progress | None = None
) -> tuple[dict[int, str], int]:
    """Pictures of some rows as data URIs, the examples first, and how many were left out; none without paths."""
    made: dict[int, str] = {}
    if paths is None:
        return made, 0
    tried: set[int] = set()
    size = 0
    for side, limit, wanted in zip(_SIDES, _BYTES, (dict.fromkeys(examples), rows), strict=True):
        todo = [row for row in wanted if row not in tried]
        for part in chunks(len(todo), _AT_ONCE):
            if size >= limit:
                break
            found = map_on_cores(partial(thumbnail, side=side), [paths[row] for row in todo[part]])
            tried.update(todo[part])
            made |= {row: picture for row, picture in zip(todo[part], found, strict=True) if picture}
            size += sum(len(picture) for picture in found)
            if progress is not None:
                progress("making pictures", len(tried), len(rows))
    return made, len(rows) - len(tried)

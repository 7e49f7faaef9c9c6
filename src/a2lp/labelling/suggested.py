"""Points to label next, by the names that the user has for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a2lp.arrays import NDArray
from a2lp.checks import shown
from a2lp.files import check_target
from a2lp.labelling.labelled import data_frame
from a2lp.labelling.labels import check_not_labels
from a2lp.labelling.notebook import Line, html_table
from a2lp.labelling.tables import append_rows
from a2lp.pool.suggest import Suggestion


@dataclass(frozen=True, eq=False, repr=False)
class Suggested:
    """Points to label next, the most valuable first; iteration gives their keys.

    Attributes
    ----------
    keys : list
        Keys of the points: paths, names, or rows.
    rows : array (m,)
        Their positions.
    why : tuple of str
        The reason for each of them.
    how : tuple of str
        How each was chosen, for the column ``how`` of a table of labels.
    key : str
        The name of the column of keys.
    paths : tuple of Path or None
        The images.

    Examples
    --------
    >>> import a2lp
    >>> from sklearn.datasets import load_digits
    >>> chosen = a2lp.suggest(load_digits().data[:200], n=3)
    >>> len(chosen.rows), len(chosen.why)
    (3, 3)
    """

    keys: list[Any]
    rows: NDArray
    why: tuple[str, ...]
    how: tuple[str, ...]
    key: str
    paths: tuple[Path, ...] | None
    _found: Suggestion

    @classmethod
    def of(cls, found: Suggestion, names: NDArray, key: str, paths: Sequence[Path] | None) -> Suggested:
        """A pool's suggestions, by name."""
        rows = found.rows.tolist()
        images = None if paths is None else tuple(paths[row] for row in rows)
        return cls(names[found.rows].tolist(), found.rows, found.why, found.how, key, images, found)

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys)

    def __repr__(self) -> str:
        first = ", ".join(shown(key) for key in self.keys[:3]) + (", ..." if len(self) > 3 else "")
        return f"Suggested({len(self)} points: {first})"

    @property
    def expected(self) -> float | None:
        """By how much the accuracy should rise when all of them are labelled; see ``a2lp.pool.suggest.Suggestion``."""
        return self._found.expected

    def _repr_html_(self) -> str:
        lines = [
            Line([key, why], None if self.paths is None else self.paths[place])
            for place, (key, why) in enumerate(zip(self.keys, self.why, strict=True))
        ]
        forecast = "" if self.expected is None else f"; about +{100 * self.expected:.1f} points of accuracy"
        return html_table(f"{len(self)} points to label next{forecast}", [self.key, "why"], lines)

    def to_pandas(self) -> Any:
        """A data frame with one row for each point, and an empty column for its label; its index holds the keys."""
        empty = [None] * len(self)
        return data_frame({self.key: self.keys, "label": empty, "how": self.how, "why": self.why}, self.key)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a table to fill in: the point's key, ``label`` (empty), ``how`` and ``why``.

        Parameters
        ----------
        path : str or Path
            A .csv file.
        force : bool
            Whether an existing file is replaced; one that holds your own labels never is.
        """
        check_not_labels(path, [])
        check_target(path, (".csv",), "a list of suggestions", force=force)
        rows = [(str(key), how, why) for key, how, why in zip(self.keys, self.how, self.why, strict=True)]
        append_rows(Path(path), self.key, rows, new=True)

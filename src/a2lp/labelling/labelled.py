"""The result of labelling: every point with its label, to look at, to save, and to go on from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from a2lp.arrays import NDArray
from a2lp.checks import shown
from a2lp.errors import UnknownKeyError, import_extra
from a2lp.labelling.notebook import Line, html_table
from a2lp.pool.confidence import Assessment, Estimate
from a2lp.pool.session import Pool
from a2lp.pool.solve import PoolAnswer

if TYPE_CHECKING:
    from a2lp.labelling.suggested import Suggested


_IN_NOTEBOOK = 10  # points shown


@dataclass(frozen=True, eq=False, repr=False)
class Labelled:
    """Every point with its label. ``result[key]`` is the row of a point, as a dict; iteration gives the keys.

    Attributes
    ----------
    table : dict of arrays (n,)
        Columns for a data frame, as ``to_pandas`` makes it: the point's key, then ``label`` (None if it was abstained
        from or rejected), ``confidence`` (the probability that the label is right), ``second`` (the next best class),
        ``margin`` (between the two), ``reached`` (False where no path of the graph leads to a labelled point, so that
        the label is unreliable), ``nearest`` (the key of the closest labelled point), ``given`` (whether the label is
        the caller's own), ``how`` (how a given label was chosen, as ``Pool.label`` takes it) and ``novelty`` (from 0 to
        1: how little the point looks like any of the classes, by its rank among the unlabelled ones).
    answer : PoolAnswer
        The predictions.
    assessment : Assessment
        The accuracy to expect with its interval, and given labels that look wrong.
    pool : Pool
        The points with their labels; add labels to it and pass it to ``label`` again.
    paths : tuple of Path or None
        The images, in the order of the points; None for vectors.
    source : str
        What was labelled: a folder or a file; empty for arrays.

    Examples
    --------
    >>> import a2lp
    >>> x = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
    >>> result = a2lp.label(x, {0: "auk", 2: "wren"})
    >>> result.labels.tolist()
    ['auk', 'auk', 'wren', 'wren']
    >>> result.table["given"].tolist()
    [True, False, True, False]
    """

    table: dict[str, NDArray]
    answer: PoolAnswer
    assessment: Assessment
    pool: Pool
    paths: tuple[Path, ...] | None = None
    source: str = ""

    def __len__(self) -> int:
        return len(self.table["label"])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.table[self.key].tolist())

    def __contains__(self, key: object) -> bool:
        return key in self._row_of

    def __getitem__(self, key: Any) -> dict[str, Any]:
        if isinstance(key, Path):
            key = key.as_posix()
        try:
            row = self._row_of[key]
        except (KeyError, TypeError):
            known = shown(next(iter(self))) if len(self) else "nothing"
            raise UnknownKeyError(
                f"{shown(key)} is no key of the {len(self)} points, which are called like {known}."
            ) from None
        return {name: column[row : row + 1].tolist()[0] for name, column in self.table.items()}

    def __repr__(self) -> str:
        given = int(self.table["given"].sum())
        return (
            f"Labelled({len(self)} points, {given} of them given: {len(self.classes)} classes; method {self.method!r})"
        )

    def _repr_html_(self) -> str:
        new = np.flatnonzero(~self.table["given"])
        order = new[np.argsort(self.table["confidence"][new], kind="stable")][:_IN_NOTEBOOK]
        what = "points" if self.paths is None else "images"
        worth = self.assessment
        words = f"{len(self)} {what}, {len(self) - len(new)} labelled by you, {len(self.classes)} classes"
        if len(new):
            interval = f"95 % interval {100 * worth.low:.0f} to {100 * worth.high:.0f} %"
            checked = interval if self.checked else "not checked: there is no label"
            words += f"; expected accuracy {100 * worth.accuracy:.0f} % ({checked}). The most doubtful:"
        columns = [self.key, "label", "confidence", "second"]
        lines = []
        for row in order.tolist():
            cells = {name: self.table[name][row] for name in columns}
            cells["confidence"] = f"{cells['confidence']:.2f}"
            lines.append(Line(list(cells.values()), None if self.paths is None else self.paths[row]))
        return html_table(words, columns, lines)

    @property
    def labels(self) -> NDArray:
        """The label of each point (n,); None if it was abstained from or rejected."""
        return self.table["label"]

    @property
    def confidence(self) -> NDArray:
        """The probability that each label is right (n,)."""
        return self.table["confidence"]

    @property
    def classes(self) -> NDArray:
        """The classes (c,), sorted."""
        return self.answer.classes

    @property
    def probabilities(self) -> NDArray:
        """Calibrated probabilities (n, c); see ``Assessment``."""
        return self.assessment.probabilities

    @property
    def key(self) -> str:
        """The name of the first column, which holds the points' keys."""
        return next(iter(self.table))

    @property
    def method(self) -> str:
        """The method that was used."""
        return self.answer.method

    @property
    def unlabelled(self) -> NDArray:
        """Which points have no label (n,): they were abstained from or rejected."""
        return np.array([label is None for label in self.table["label"]], dtype=bool)

    @property
    def checked(self) -> bool:
        """Whether any label could check the predictions; the expected accuracy from names alone is only a guess."""
        return bool(self.table["given"].any())

    @property
    def kept(self) -> Estimate:
        """The accuracy to expect on the points that a2lp has labelled, without those left unlabelled."""
        return self.assessment.of(~self.unlabelled)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The points one by one, in plain Python values."""
        columns = [column.tolist() for column in self.table.values()]
        for values in zip(*columns, strict=True):
            yield dict(zip(self.table, values, strict=True))

    def with_column(self, name: str, values: Sequence[Any]) -> Labelled:
        """The same with one more column."""
        return replace(self, table=self.table | {name: np.array(values, dtype=object)})

    def to_pandas(self) -> Any:
        """A data frame with one row for each point; its index holds the keys."""
        return data_frame(self.table, self.key)

    def save(self, path: str | Path, *, force: bool = False, link: bool = False) -> None:
        """Write all labels, in any format of ``a2lp classify --out``.

        Parameters
        ----------
        path : str or Path
            A .csv, .parquet, .jsonl or .json file (Label Studio's tasks), or, for images, a folder, which gets one for
            each class.
        force : bool
            Whether an existing output is replaced; one that holds your own labels never is.
        link : bool
            Whether folders get symbolic links to the images instead of copies.
        """
        from a2lp.labelling.labels import check_not_labels
        from a2lp.labelling.outputs import write_output

        check_not_labels(path, [])
        root = Path(self.source) if self.source and Path(self.source).is_dir() else None
        write_output(self, path, force=force, link=link, paths=self.paths, source=root)

    def report(self, path: str | Path, *, force: bool = False) -> None:
        """Write one page about the labels: what to look at first, corrections, and a map.

        Parameters
        ----------
        path : str or Path
            An .html file.
        force : bool
            Whether an existing page is replaced.
        """
        from a2lp.labelling.report import write_report

        write_report(self, path, title=self.source or "labels", paths=self.paths, force=force, seed=self.pool.seed)

    def suggest(self, n: int = 20, audits: float = 0.0) -> Suggested:
        """Choose the points to label next.

        Parameters
        ----------
        n : int
            How many; fewer if not so many are unlabelled.
        audits : float
            The share that is drawn at random, as in ``a2lp.Pool.suggest``.

        Returns
        -------
        Suggested
        """
        from a2lp.labelling.suggested import Suggested

        return Suggested.of(self.pool.suggest(n, audits), self.table[self.key], self.key, self.paths)

    @cached_property
    def _row_of(self) -> dict[Any, int]:
        return {key: row for row, key in enumerate(self)}


def data_frame(table: dict[str, Any], key: str) -> Any:
    """A pandas data frame of columns, one of which becomes the index."""
    return import_extra("a data frame", "pandas", "pandas").DataFrame(table).set_index(key)

"""The rows of a feature file by class, and checks that tasks of some size can be drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from a2lp.checks import require_whole
from a2lp.errors import ClassTooSmallError, InputError, ShapeError


class ClassPool:
    """The rows of each class, classes in the order of their sorted labels; ``class_names`` are indexed by label."""

    def __init__(self, labels: Any, class_names: Sequence[str] | None) -> None:
        labels = np.asarray(labels)
        if labels.ndim != 1 or not labels.size:
            raise ShapeError(f"labels has shape {labels.shape}; it must be (rows,). Give one label for each row.")
        self.values, codes, self.sizes = np.unique(labels, return_inverse=True, return_counts=True)
        self.members = np.split(np.argsort(codes, kind="stable"), np.cumsum(self.sizes)[:-1])
        self.class_names = class_names

    def name(self, position: int) -> str:
        """A class's name, quoted for a message."""
        value, names = self.values[position], self.class_names
        if names is not None and isinstance(value, int | np.integer) and 0 <= value < len(names):
            value = names[int(value)]
        return repr(str(value))

    def need_rows(self, **parts: int) -> None:
        """Raise ClassTooSmallError unless every class has enough rows for its ``parts`` of a task."""
        needed, smallest = sum(parts.values()), int(np.argmin(self.sizes))
        if self.sizes[smallest] < needed:
            words = {"support": "shots", "query": "queries", "unlabelled": "unlabelled images"}
            raise ClassTooSmallError(
                f"n_shot={parts['support']} needs {needed} images per class "
                f"({' + '.join(f'{count} {part}' for part, count in parts.items())}); "
                f"class {self.name(smallest)} has {self.sizes[smallest]}. "
                f"Ask for fewer {' or '.join(words[part] for part in parts)}, or drop the class."
            )

    def need_classes(self, n_way: int, n_distractors: int = 0) -> None:
        """Raise InputError unless there are enough classes for a task."""
        needed, found = n_way + n_distractors, len(self.members)
        if needed > found:
            more = f" and n_distractors={n_distractors}" if n_distractors else ""
            raise InputError(f"n_way={n_way}{more} needs {needed} classes; the labels have {found}. Ask for fewer.")


def require_sizes(*, least: int = 1, **sizes: Any) -> dict[str, Any]:
    """The sizes as plain ints; InputError unless each is a whole number of at least ``least``."""
    for name, value in sizes.items():
        require_whole(name, value, least, f"The smallest value is {least}.")
    return {name: int(value) for name, value in sizes.items()}

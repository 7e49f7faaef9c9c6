"""How many keys until 95 % of all labels are right: a simulated user of the labelling page, and one-by-one labelling.

    .venv/bin/python benchmarks/page_keys.py --measure --data FOLDER            # choose on validation pools
    .venv/bin/python benchmarks/page_keys.py --measure --data FOLDER --test     # then once on the test pools
    .venv/bin/python benchmarks/page_keys.py                                    # docs/serve.md from the record

FOLDER holds the feature files named below. The user knows the truth and the classes from the start (``--names``), and
does what the page offers; a click counts as a key.

- **Queue**: each suggestion costs Enter where the prediction is right, ``,`` or ``;`` where it is the second or third
  guess, the digit of a class that has one, and otherwise letters in the palette and Enter.
- **Groups**: the points by predicted class, the most doubtful first. The user looks at some screens of a group, clicks
  each wrong point and names it as above (those of the same class together), accepts what was seen (Shift+Enter), and
  goes to the next group (PageDown). A further screen of the same group is a key, too.
- **One by one**: 95 % of the points in random order, each by digit or palette, without any prediction.

The answers are those of ``a2lp.Pool``, which the page shows (``page.py`` compares the two).
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from study import RECORDS, ROOT, Record, fill, table

import a2lp
from a2lp.files import write_text

RECORD = RECORDS / "page_keys.json"
PAGE = ROOT / "docs" / "serve.md"
VALIDATION = {"cub_resnet12_val": "CUB val, ResNet-12", "clip_vitb_dtd_val": "DTD val, CLIP"}
TEST = {
    "cub_resnet12_test": "CUB test, ResNet-12",
    "clip_vitb_oxford_pets_test": "Oxford Pets, CLIP",
    "clip_vitb_dtd_test": "DTD test, CLIP",
}
GOAL = 0.95
SCREEN = 35  # cells on a screen of 1440 x 900
PINNED = 9
RECENT = 30  # classes that the palette remembers
FRESH = 10  # labels of the queue between two answers
Array = np.ndarray[Any, Any]


class Habits(NamedTuple):
    """How a user works: labels from the queue before groups, screens of each group, which points the grid shows."""

    queued: int
    screens: int
    doubtful: bool  # the filter Doubtful (below 80 %), or Unlabelled


CHOICES = [Habits(60, 1, False), Habits(200, 1, False), Habits(200, 3, False), Habits(200, 1, True)]


def fit(name: str, query: str) -> int:
    """How well typed letters fit a name, as in the page's match.js: 0 best, -1 not at all."""
    words = re.split(r"[^a-z0-9]+", name)
    starts = [" ".join(words[i:]) for i in range(len(words))]
    initials = "".join(word[:1] for word in words)
    fits = (
        name == query,
        name.startswith(query),
        any(start.startswith(query) for start in starts),
        _within(initials, query),
        query in name,
        _within(name, query) and name[0] == query[0],
        _within(name, query),
    )
    return fits.index(True) if any(fits) else -1


def _within(text: str, letters: str) -> bool:
    rest = iter(text)
    return all(letter in rest for letter in letters)


class Hand:
    """The keys that labels cost: nine digits, and the palette."""

    def __init__(self, names: list[str]) -> None:
        self.names = names[:PINNED] + sorted(names[PINNED:])
        self.digits = set(names[:PINNED])
        self.recent: list[str] = []
        self._fits: dict[str, list[tuple[int, int, str]]] = {}

    def label(self, name: str, likely: list[str] | None = None) -> int:
        """Keys of one label; ``likely`` are the three classes that the page shows as most likely."""
        others = likely[1:3] if likely else []
        cost = 1 if name in self.digits or name in others else self._typed(name, likely or [])
        self.recent = [name, *(one for one in self.recent if one != name)][:RECENT]
        return cost

    def _typed(self, name: str, likely: list[str]) -> int:
        """Initials of a name, or letters where it is one word, until the palette has it first; then Enter."""
        words = re.split(r"[^a-z0-9]+", name)
        letters = "".join(word[0] for word in words) if len(words) > 1 else name
        for count in range(1, len(letters) + 1):
            found = self._found(letters[:count], likely)
            if found[0] == name:
                return count + 1
        return len(letters) + found.index(name) + 1  # arrow keys

    def _found(self, letters: str, likely: list[str]) -> list[str]:
        if letters not in self._fits:
            fits = [(fit(name, letters), place, name) for place, name in enumerate(self.names)]
            self._fits[letters] = [one for one in fits if one[0] >= 0]
        first = {name: place for place, name in reversed(list(enumerate([*likely, *self.recent])))}
        ranked = [(how, first.get(name, len(first) + RECENT), place, name) for how, place, name in self._fits[letters]]
        return [name for *_, name in sorted(ranked)]


class User:
    """Somebody who knows the truth, at the page."""

    def __init__(self, pool: a2lp.Pool, truth: Array, names: list[str], habits: Habits) -> None:
        self.pool, self.truth, self.habits, self.hand = pool, truth, habits, Hand(names)
        self.keys = 0
        self.group = -1

    def right(self) -> float:
        """The share of all points whose label or prediction is right."""
        return float((self.pool.answer.labels == self.truth).mean())

    def work(self) -> None:
        """Twenty suggestions, or the screens of one group."""
        if self.pool.given.sum() < self.habits.queued:
            self._queue()
        else:
            self._review()

    def _guesses(self, rows: Array) -> list[list[str]]:
        if len(set(self.pool.labels[self.pool.given])) < 2:
            return [[]] * len(rows)
        answer = self.pool.answer
        return answer.classes[np.argsort(-answer.probabilities[rows], axis=1, kind="stable")[:, :3]].tolist()

    def _queue(self) -> None:
        rows = self.pool.suggest(20).rows
        for start in range(0, len(rows), FRESH):
            part = rows[start : start + FRESH]
            for row, guesses in zip(part, self._guesses(part), strict=True):
                right = guesses[:1] == [self.truth[row]]
                self.keys += 1 if right else self.hand.label(self.truth[row], guesses)
            self.pool.label(part, self.truth[part], "suggested")

    def _review(self) -> None:
        answer, open_ = self.pool.answer, ~self.pool.given
        sure = answer.probabilities.max(axis=1)
        shown = open_ & (sure < 0.8) if self.habits.doubtful else open_
        shown = shown if shown.any() else open_
        waiting = [place for place, name in enumerate(self.hand.names) if (shown & (answer.labels == name)).any()]
        self.group = next((place for place in waiting if place > self.group), waiting[0])
        name = self.hand.names[self.group]
        rows = np.flatnonzero(shown & (answer.labels == name))
        rows = rows[np.argsort(sure[rows], kind="stable")][: SCREEN * self.habits.screens]
        self.keys += 2 + (len(rows) - 1) // SCREEN
        wrong = defaultdict(list)
        for row, guesses in zip(rows.tolist(), self._guesses(rows), strict=True):
            if self.truth[row] != name:
                wrong[self.truth[row]].append(guesses)
        for right, clicked in wrong.items():
            self.keys += len(clicked) + self.hand.label(right, clicked[-1])
        self.pool.label(rows, self.truth[rows])


def load(path: Path) -> tuple[Array, Array, list[str]]:
    """Vectors, true names, and the names, as somebody would write them."""
    data = a2lp.load(path)
    names = [re.sub(r"^\d+\.", "", name).replace("_", " ").lower() for name in data.classes or ()]
    return data.features.astype(np.float32), np.array([names[code] for code in data.labels], dtype=object), names


def one_by_one(truth: Array, names: list[str]) -> int:
    """Keys of labelling 95 % of the points without a2lp."""
    hand, order = Hand(names), np.random.default_rng(0).permutation(len(truth))
    return sum(hand.label(truth[row]) for row in order[: int(np.ceil(GOAL * len(truth)))])


def trial(path: Path, every: list[Habits]) -> dict[str, Any]:
    """Keys of each kind of user on a pool."""
    x, truth, names = load(path)
    graph, users = a2lp.Pool(x), []
    for habits in every:
        pool = a2lp.Pool(graph.graph)
        pool.points = graph.points
        user, curve = User(pool, truth, names, habits), []
        while not curve or curve[-1][1] < GOAL:
            user.work()
            curve.append([user.keys, round(user.right(), 4)])
        users.append({"habits": list(habits), "keys": user.keys, "labels": int(pool.given.sum()), "curve": curve})
        print(path.stem, habits, user.keys, flush=True)
    return {"points": len(truth), "classes": len(names), "one_by_one": one_by_one(truth, names), "users": users}


def shares(record: Record) -> dict[tuple[Any, ...], float]:
    """The mean share of keys over the validation pools, for each kind of user."""
    found = [record.named("validation").get(name) for name in VALIDATION]
    return {
        habits: float(np.mean([one["users"][place]["keys"] / one["one_by_one"] for one in found if one]))
        for place, habits in enumerate(CHOICES)
    }


def page(text: str, record: Record) -> str:
    """The page with its generated table."""
    rows = []
    for kind, pools in (("validation", VALIDATION), ("test", TEST)):
        for name, shown in pools.items():
            if one := record.named(kind).get(name):
                best = min(one["users"], key=lambda user: shares(record)[Habits(*user["habits"])])
                share = f"{best['keys'] / one['one_by_one']:.2f}"
                numbers = (one["points"], one["classes"], one["one_by_one"], best["keys"])
                rows.append([shown, *(f"{number:,}" for number in numbers), share])
    return fill(text, "keys", {"table": table(["pool", "points", "names", "one by one", "a2lp", "share"], rows)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--test", action="store_true", help="the chosen habits on the test pools")
    parser.add_argument("--data", type=Path, help="folder of feature files")
    options = parser.parse_args()
    record = Record(RECORD, "Keys until 95 % of all labels are right, by simulated users of the labelling page")
    if options.measure:
        every = [min(shares(record), key=shares(record).__getitem__)] if options.test else CHOICES
        for name in TEST if options.test else VALIDATION:
            part = f"{'test' if options.test else 'validation'} {name}"
            record.measure(part, lambda: trial(options.data / f"{name}.npz", every))  # noqa: B023
    for habits, share in sorted(shares(record).items(), key=lambda one: one[1]) if record.parts else ():
        print(f"{share:.3f}", habits)
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()

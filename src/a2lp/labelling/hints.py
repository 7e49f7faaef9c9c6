"""The next command of the loop, to be pasted: suggest, label, classify, and again."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from a2lp.files import exists
from a2lp.labelling.labels import Where
from a2lp.labelling.sources import Embedding
from a2lp.labelling.tables import holds_labels, is_output


def classify_command(
    source: Where, labels: Sequence[Where], how: Embedding, names: Where | None = None, text: Where | None = None
) -> str:
    """``a2lp classify`` with these labels and names, into a new table or one that a2lp wrote."""
    return _pasted([*_same("classify", source, labels, how, names, text), "--out", *_output(labels)])


def suggest_command(
    source: Where,
    labels: Sequence[Where],
    how: Embedding,
    names: Where | None = None,
    text: Where | None = None,
    *more: str,
) -> str:
    """``a2lp suggest`` with these labels: lines are added to the first of the user's own tables, or to a new one."""
    tables = [where for where in labels if str(where).lower().endswith((".csv", ".tsv")) and not is_output(Path(where))]
    into = tables[0] if tables else _free("labels")
    others = [where for where in labels if where != into]
    return _pasted([*_same("suggest", source, others, how, names, text), *more, "--into", str(into)])


def sheet_table(sheet: Where) -> str:
    """The table that a sheet's labels are saved as."""
    return _free(Path(sheet).stem)


def _same(
    command: str, source: Where, labels: Sequence[Where], how: Embedding, names: Where | None, text: Where | None
) -> list[str]:
    """A command on the same source, with the labels, the names and the options that are not the defaults."""
    words = ["a2lp", command, str(source), *(word for where in labels for word in ("--labels", str(where)))]
    words += [] if names is None else ["--names", str(names)]
    words += [] if text is None else ["--text", str(text)]
    for option in ("backbone", "weights", "view", "normalise", "device", "on_corrupt", "cache"):
        value = getattr(how, option)
        if value != getattr(Embedding(), option):
            words += [f"--{option.replace('_', '-')}", str(value)]
    words += [word for prompt in how.prompts for word in ("--prompt", prompt)]
    return words


def _output(labels: Sequence[Where]) -> list[str]:
    """A name for the output: one that is free, or that of an earlier output, which may be replaced."""
    taken = {Path(where).resolve() for where in labels}
    for name in _names("out"):
        if not exists(name):
            return [name]
        if Path(name).resolve() not in taken and is_output(Path(name)) and not holds_labels(Path(name)):
            return [name, "--force"]
    raise AssertionError("names do not end")


def _free(stem: str) -> str:
    return next(name for name in _names(stem) if not exists(name))


def _names(stem: str) -> Iterator[str]:
    return (f"{stem}{'' if number == 1 else number}.csv" for number in count(1))


def _pasted(words: Sequence[str]) -> str:
    """A command line for the shell of this system."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)

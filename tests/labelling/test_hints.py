from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from a2lp.labelling import Embedding, hints
from a2lp.labelling.hints import classify_command, sheet_table, suggest_command

MINE = "path,label\na.jpg,auk\n"
OUTPUT = "path,label,confidence,given\na.jpg,auk,1.0,true\nb.jpg,wren,0.7,false\n"
HOW = Embedding()


def words(command: str) -> list[str]:
    return shlex.split(command)[2:]


@pytest.mark.usefixtures("here")
def test_outputs_replace_earlier_outputs_and_nothing_else() -> None:
    def out(*labels: str) -> list[str]:
        found = words(classify_command("photos", labels, HOW))
        return found[found.index("--out") + 1 :]

    assert out("labels.csv") == ["out.csv"]
    Path("out.csv").write_text(OUTPUT)
    assert out("labels.csv") == ["out.csv", "--force"]
    assert out("labels.csv", "./out.csv") == ["out2.csv"]  # it is read
    for text in (MINE, OUTPUT + "c.jpg,tern,,\n", "something else\n"):  # the user's, or of another program
        Path("out.csv").write_text(text)
        assert out("labels.csv") == ["out2.csv"]


@pytest.mark.usefixtures("here")
def test_lines_go_into_the_first_table_that_is_the_users_own() -> None:
    for name, text in {"one.csv": MINE, "two.csv": MINE, "out.csv": OUTPUT}.items():
        Path(name).write_text(text)
    Path("sorted").mkdir()
    for labels, expected in {
        ("one.csv", "two.csv"): ["photos", "--labels", "two.csv", "--into", "one.csv"],
        ("out.csv", "two.csv"): ["photos", "--labels", "out.csv", "--into", "two.csv"],
        ("sorted", "out.csv"): ["photos", "--labels", "sorted", "--labels", "out.csv", "--into", "labels.csv"],
    }.items():
        assert words(suggest_command("photos", labels, HOW)) == expected
    Path("labels.csv").write_text(MINE)  # was not given, and may contradict what was
    assert words(suggest_command("photos", ["sorted"], HOW))[-1] == "labels2.csv"
    assert sheet_table("pages/one.html") == "one2.csv"  # labels that were saved before stay


def test_commands_can_be_pasted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = Embedding("resnet12", Path("my weights.safetensors"), on_corrupt="refuse")
    command = classify_command("Anna's photos; rm -rf x", ["a b.csv"], how)
    assert words(command) == [
        *("Anna's photos; rm -rf x", "--labels", "a b.csv", "--backbone", "resnet12"),
        *("--weights", "my weights.safetensors", "--on-corrupt", "refuse", "--out", "out.csv"),
    ]
    monkeypatch.setattr(hints.os, "name", "nt")
    assert hints._pasted(["a2lp", "suggest", "Anna's photos", "--into", "labels.csv"]) == (
        'a2lp suggest "Anna\'s photos" --into labels.csv'
    )

"""The state of the labels against a fold of the log from scratch, which is written independently."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from a2lp.errors import InputError
from a2lp.serve.commands import Conflict, View, line_of
from a2lp.serve.state import Labels

KEYS = [f"p{i}" for i in range(12)]
NAMES = ["auk", "tern", "wren", "gull"]


rows = st.lists(st.integers(0, len(KEYS) - 1), min_size=1, max_size=len(KEYS))
name = st.sampled_from(NAMES)
command = st.one_of(
    st.fixed_dictionaries({"op": st.just("label"), "rows": rows, "label": name}),
    st.fixed_dictionaries(
        {"op": st.sampled_from(["accept", "accept_unseen"]), "rows": rows, "codes": st.integers(0, 9)}
    ),
    st.fixed_dictionaries({"op": st.sampled_from(["reject", "clear"]), "rows": rows}),
    st.fixed_dictionaries({"op": st.sampled_from(["rename", "merge"]), "label": name, "to": name}),
    st.fixed_dictionaries({"op": st.just("class"), "label": name}),
    st.fixed_dictionaries({"op": st.just("undo"), "seq": st.integers(1, 60)}),
    st.fixed_dictionaries({"op": st.sampled_from(["undo", "redo"])}),
)


@given(asked=st.lists(command, max_size=60), order=st.randoms(use_true_random=False))
def test_any_commands_undone_in_any_order_are_the_fold_of_what_is_left(page_client, asked, order):
    labels = Labels({key: row for row, key in enumerate(KEYS)})
    view = View(KEYS, lambda rows: [-1] * len(rows), lambda rows: [0.0] * len(rows), lambda: range(len(KEYS)))
    lines: list[dict[str, Any]] = []

    def do(one: dict[str, Any]) -> None:
        one = {"id": f"c{len(lines)}", **one}
        if "codes" in one:
            one["labels"] = [one["codes"] % max(1, len(labels.classes))] * len(set(one["rows"]))
        try:
            line = {"seq": len(lines) + 1, **line_of(one, labels, view)}
        except (Conflict, InputError):
            return
        lines.append(line)
        labels.apply(line)

    def check() -> None:
        points, names, into = page_client.fold(lines)
        classes = labels.classes
        mine = {
            KEYS[row]: (mark.kind, classes[mark.code].root if mark.code >= 0 else -1)
            for row, mark in labels.marks.items()
        }
        assert mine == points
        assert {code: info.root for code, info in enumerate(classes)} == into
        alive = [info.name for info in classes if not info.gone]
        assert len(set(alive)) == len(alive)
        for code, info in enumerate(classes):
            assert info.gone or info.name.split(" (")[0] == names[code]
        assert all(not classes[code].gone for _, code in points.values() if code >= 0)

    for one in asked:
        do(one)
    check()
    for seq in order.sample(range(1, len(lines) + 1), len(lines)):  # then all of them, in any order
        do({"op": "undo", "seq": seq})
    check()
    again = Labels(labels.row_of)
    for line in lines:
        again.apply(line)
    assert again.marks == labels.marks and again.classes == labels.classes


def test_undo_and_redo_walk_back_and_forth():
    labels = Labels({key: row for row, key in enumerate(KEYS)})
    view = View(KEYS, lambda rows: [-1] * len(rows), lambda rows: [0.0] * len(rows), lambda: range(len(KEYS)))

    def do(**one: Any) -> None:
        labels.apply({"seq": labels.seq + 1, **line_of({"id": f"c{labels.seq}", **one}, labels, view)})

    def now() -> list[int]:
        return sorted(labels.marks)

    for row in range(3):
        do(op="label", rows=[row], label="auk")
    do(op="undo")
    do(op="undo")
    assert now() == [0]
    do(op="redo")
    assert now() == [0, 1]
    do(op="redo")
    assert now() == [0, 1, 2] and labels.last_undone() is None
    do(op="undo")
    do(op="label", rows=[5], label="tern")
    assert labels.last_undone() is None  # a new command ends what can be redone
    do(op="undo", seq=1)
    assert now() == [1, 5]


def test_a_class_keeps_its_points_through_renaming_and_back():
    labels = Labels({key: row for row, key in enumerate(KEYS)})
    view = View(KEYS, lambda rows: [-1] * len(rows), lambda rows: [0.0] * len(rows), lambda: range(len(KEYS)))

    def do(**one: Any) -> None:
        labels.apply({"seq": labels.seq + 1, **line_of({"id": f"c{labels.seq}", **one}, labels, view)})

    do(op="label", rows=[0], label="auk")
    do(op="rename", label="auk", to="tern")
    do(op="label", rows=[1], label="tern")
    do(op="undo", seq=2)
    assert [info.name for info in labels.classes] == ["auk"] and labels.anchors() == {0: 0, 1: 0}
    do(op="label", rows=[2], label="wren")
    do(op="merge", label="wren", to="auk")
    assert labels.anchors() == {0: 0, 1: 0, 2: 0} and labels.classes[1].gone
    do(op="label", rows=[3], label="wren")  # the old one is part of auk now
    assert labels.anchors()[3] == 2
    assert [info.pin for info in labels.classes] == ["1", None, "2"]
    for name in ("2", "0", "x"):
        do(op="class", label=name)
    # the key 2 must label "2", and 0 is no key
    assert {info.name: info.pin for info in labels.classes if not info.gone} == {
        "auk": "1",
        "wren": "3",
        "2": "2",
        "0": None,
        "x": "4",
    }
    do(op="pin", label="0", key="2")
    assert {info.name: info.pin for info in labels.classes}["0"] == "2"

"""The whole server, as the page uses it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
import time
import uuid

import numpy as np
import pytest
from sklearn.datasets import load_digits

import a2lp

YOURS, ACCEPTED, UNSEEN, DOUBTFUL, NOVEL, REJECTED, UNREACHED, SETTLING = (1 << bit for bit in range(8))
NONE = 0xFFFF
TRUTH = [str(digit) for digit in load_digits().target]


@pytest.fixture(scope="module")
def labelled(demo):
    """The demo after thirty labels, one by one; as the user's own choice, which is what ``a2lp.label`` assumes."""
    before = demo.wait(lambda state: state["suggestions"])
    rows = [one["row"] for one in before["suggestions"]]
    rows += [row for row in range(200) if row not in rows][:10]
    demo.do("label", rows=[rows[0]], label=TRUTH[rows[0]])
    time.sleep(0.5)
    assert (np.delete(demo.rows()[1], rows[0]) == NONE).all()  # one class is no choice
    for row in rows[1:]:
        demo.do("label", rows=[row], label=TRUTH[row])
    return rows


def test_the_settled_page_shows_what_classify_gives(demo, labelled, page_client):
    state = demo.settled()
    _, classes, confidence, flags = demo.rows()
    digits = a2lp.load("digits")
    given = np.full(len(TRUTH), None, dtype=object)
    given[labelled] = [TRUTH[row] for row in labelled]
    expected = a2lp.label(digits.features, given)
    assert page_client.names_of(state, classes) == expected.table["label"].tolist()
    assert np.abs(confidence / 255 - expected.table["confidence"]).max() < 0.003
    assert np.flatnonzero(flags & YOURS).tolist() == sorted(labelled)
    assert not (flags & SETTLING).any() and not state["settling"]
    assert ((flags & DOUBTFUL > 0) == ((confidence < 204) & ~(flags & YOURS > 0)))[flags & YOURS == 0].mean() > 0.99
    assert state["accuracy"]["value"] == pytest.approx(expected.assessment.accuracy)
    assert state["counts"]["yours"] == len(labelled) and state["forecast"]["n"] == 20
    table = list(csv.DictReader(io.StringIO(demo.get("/api/export?format=csv").decode())))
    assert [row["label"] for row in table] == expected.table["label"].tolist()
    point = demo.json(f"/api/points?rows={labelled[0]},5")[1]
    assert point["key"] == "5" and len(point["top"]) == 3 and point["nearest"] == int(expected.table["nearest"][5])


def test_a_label_shows_at_once_near_it_and_undo_takes_it_back(demo, labelled):
    demo.settled()
    tab = demo.tab()
    tab.until(demo.state()["seq"])
    before = [array.copy() for array in tab.arrays]
    seq = demo.do("label", rows=[1500], label="strange")["seq"]
    tab.until(seq)
    code = next(one["id"] for one in demo.state()["classes"] if one["name"] == "strange")
    assert tab.arrays[0][1500] == code and tab.arrays[2][1500] == YOURS and tab.arrays[1][1500] == 255
    assert (tab.arrays[2] & SETTLING).any()
    undone = demo.do("undo", seq=seq)
    assert undone["undone"] == seq
    tab.until(undone["seq"])
    demo.settled()
    tab.drain()
    assert all((now == then).all() for now, then in zip(tab.arrays, before, strict=True))
    assert next(one for one in demo.state()["classes"] if one["name"] == "strange")["gone"]
    tab.close()


def test_tabs_agree(demo, labelled):
    tabs = [demo.tab() for _ in range(3)]
    demo.do("label", rows=[900, 901], label="a")
    demo.do("reject", rows=[902])
    seq = demo.do("clear", rows=[901])["seq"]
    demo.settled()
    for tab in tabs:
        tab.until(seq)
        tab.drain()
    _, *arrays = demo.rows()
    for tab in tabs:
        assert all((mine == theirs).all() for mine, theirs in zip(tab.arrays, arrays, strict=True))
        assert [one["op"] for one in tab.messages if one["type"] == "event"] == ["label", "reject", "clear"]
        assert tab.states[-1]["seq"] == seq
        tab.close()
    assert arrays[0][902] == NONE and arrays[2][902] == REJECTED
    for _ in range(3):
        demo.do("undo")


def test_accepted_and_own_labels(demo, labelled):
    demo.settled()
    _, classes, _, _ = demo.rows()
    rows = [row for row in range(300, 330) if row not in labelled][:8]
    shown = [int(classes[row]) for row in rows]
    demo.do("label", rows=[rows[0]], label="mine")
    demo.do("accept", rows=rows[:4], labels=shown[:4], how="group")
    demo.do("accept_unseen", rows=rows[2:], labels=shown[2:], how="group")
    _, now, _, flags = demo.rows()
    assert [int(flags[row]) & 7 for row in rows] == [YOURS, *[ACCEPTED] * 3, *[UNSEEN] * 4]
    names = {one["id"]: one["name"] for one in demo.state()["classes"]}
    assert names[now[rows[0]]] == "mine" and [int(now[row]) for row in rows[1:]] == shown[1:]
    table = {row["index"]: row for row in csv.DictReader(io.StringIO(demo.get("/api/export").decode()))}
    of = [table[str(row)] for row in rows]
    assert [row["source"] for row in of] == ["yours", *["accepted"] * 3, *["accepted_unseen"] * 4]
    assert [row["given"] for row in of] == ["true"] * 4 + ["false"] * 4  # the unseen are no examples
    assert [row["label"] for row in of] == ["mine", *(names[code] for code in shown[1:])]
    assert of[0]["shown"] == names[shown[0]] and of[0]["labelled_at"].endswith("Z") and int(of[0]["event"]) > 0
    own = list(csv.DictReader(io.StringIO(demo.get("/api/export?format=labels").decode())))
    assert {row["index"] for row in own} >= {str(row) for row in rows[:4]}
    for format, first in (("jsonl", b'{"index"'), ("label-studio", b"["), ("parquet", b"PAR1")):
        assert demo.get(f"/api/export?format={format}").startswith(first)
    for _ in range(3):
        demo.do("undo")


def test_an_audit_is_blind_and_judges_what_was_predicted_when_it_began(demo, labelled, page_client):
    demo.settled()
    state = demo.state()
    _, classes, _, flags = demo.rows()
    rows = demo.do("audit_start", n=12)["rows"]
    assert len(set(rows)) == 12 and not (flags[rows] & YOURS).any()
    for row in rows[:10]:
        demo.do("label", rows=[row], label=TRUTH[row], how="audit")
    audit = demo.state()["audit"]
    shown = page_client.names_of(state, classes)
    assert audit["n"] == 10 and audit["target"] == 12 and sorted(audit["rows"]) == sorted(rows[10:])
    assert audit["right"] == sum(shown[row] == TRUTH[row] for row in rows[:10])
    assert audit["low"] < audit["right"] / 10 <= audit["high"]
    lines = [json.loads(line) for line in (demo.project / "labels.jsonl").read_text().splitlines()]
    assert not any("shown" in line for line in lines if line.get("how") == "audit")


def test_commands_are_idempotent_and_say_what_is_wrong(demo):
    id = uuid.uuid4().hex
    first = demo.post("/api/commands", {"id": id, "op": "label", "rows": [77], "label": " 7 "})
    assert first == demo.post("/api/commands", {"id": id, "op": "label", "rows": [77], "label": "8"})
    assert first[0] == 200
    demo.do("undo")
    for status, command in (
        (400, {"op": "label", "rows": [77], "label": "x"}),
        (400, {"id": "a b", "op": "label", "rows": [77], "label": "x"}),
        (400, {"id": "n1", "op": "label", "rows": [], "label": "x"}),
        (400, {"id": "n2", "op": "label", "rows": [1797], "label": "x"}),
        (400, {"id": "n3", "op": "label", "rows": [True], "label": "x"}),
        (400, {"id": "n4", "op": "label", "rows": [1], "label": " "}),
        (400, {"id": "n5", "op": "label", "rows": [1], "label": "a\nb"}),
        (400, {"id": "n6", "op": "label", "rows": [1], "label": "-1"}),
        (400, {"id": "n7", "op": "fly"}),
        (400, {"id": "n8", "op": "undo", "seq": 10**6}),
        (409, {"id": "n9", "op": "rename", "label": "nobody", "to": "x"}),
        (409, {"id": "n10", "op": "accept", "rows": [1], "labels": [4000]}),
        (400, {"id": "n11", "op": "accept", "rows": [1], "labels": ["x"]}),
    ):
        seq = demo.state()["seq"]
        found, answer = demo.post("/api/commands", command)
        assert found == status and len(answer["message"]) > 10, command
        assert demo.state()["seq"] == seq
    assert demo.request("POST", "/api/commands", None, b"{")[0] == 400
    assert demo.request("POST", "/api/commands", None, b"[]")[0] == 400
    assert demo.request("GET", "/api/points?rows=0,x")[0] == 400
    assert demo.request("GET", "/api/export?format=exe")[0] == 400
    status, answer = demo.post("/api/export", {})
    assert status == 400 and "folders for each class are made of images" in answer["message"]


def test_settings_search_and_pictures(demo):
    own = {"port": demo.port, "theme": "dark"}
    assert demo.post("/api/settings", {"theme": "dark"}) == (200, own)
    assert demo.post("/api/settings", {"keys": {"next": "n"}}) == (200, own | {"keys": {"next": "n"}})
    assert demo.json("/api/settings") == own | {"keys": {"next": "n"}}
    packed = demo.request("GET", "/", {"Cookie": demo.cookie, "Accept-Encoding": "gzip"})
    assert packed[1]["content-encoding"] == "gzip" and gzip.decompress(packed[2]) == demo.get("/")
    assert demo.json("/api/search?q=179") == {"rows": [179, 1179, *range(1790, 1797)], "total": 9}
    status, headers, data = demo.request("GET", "/thumb/3/128")
    assert status == 200 and headers["content-type"] == "image/png" and "private" in headers["cache-control"]
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(data))
    assert image.size == (128, 128)
    pixels = np.asarray(image)[::16, ::16]
    assert np.abs((255 - pixels.astype(float)) / 255 * 16 - load_digits().images[3]).max() < 0.1


def test_hostile_names_are_kept_as_text(demo):
    names = [
        "<img src=x onerror=alert(1)>",
        "'; DROP TABLE",
        "=cmd()",
        "\u202ertl",
        "{{key}}",
        "a" * 200,
        "🦉",
        "\\",
        '"',
    ]
    for row, name in enumerate(names):
        demo.do("label", rows=[row + 1600], label=name)
    assert set(names) <= {one["name"] for one in demo.state()["classes"]}
    own = list(csv.DictReader(io.StringIO(demo.get("/api/export?format=labels").decode())))
    assert "'=cmd()" in [row["label"] for row in own]  # no spreadsheet runs it
    for _ in names:
        demo.do("undo")


def test_a_second_server_on_the_project_is_refused_and_an_end_is_clean(demo):
    command = [sys.executable, "-m", "a2lp", "serve", "--no-browser", "--project", str(demo.project)]
    other = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert other.returncode == 2 and "is in use by another server" in other.stderr
    assert f"127.0.0.1:{demo.port}" in other.stderr and "Traceback" not in other.stderr
    assert demo.server.stop() == 0


def test_answers_are_sent_at_once():
    """Without TCP_NODELAY, the second part of each answer waits 40 ms for the first one's acknowledgement."""
    import asyncio
    import socket

    from a2lp.serve.run import _listen

    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(reader, writer):
            kept = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()
            found.set_result(kept)

        async with await asyncio.start_server(connected, sock=_listen(0)) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            kept = await found
            writer.close()
            return kept

    assert asyncio.run(accepted())

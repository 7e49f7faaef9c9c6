"""The backend of Label Studio over real HTTP, with bodies as Label Studio 1.23 sends them."""

from __future__ import annotations

import http.client
import json
import stat
import time

import pytest
from sklearn.datasets import load_digits

from a2lp.serve.label_studio_tasks import Finder, Interface, read_interface

TRUTH = [str(digit) for digit in load_digits().target]
SCHEMA = """<View>
  <Image name="img" value="$image"/>
  <Choices name="what" toName="img" choice="single"><Choice value="0"/><Choice value="1"/>
  <Choice value="2" hotkey="2"/></Choices>
  <Choices name="other" toName="img"><Choice value="blurred"/></Choices>
</View>"""


class LabelStudio:
    """The requests of Label Studio."""

    def __init__(self, port: int, secret: str) -> None:
        self.port, self.secret = port, secret

    def ask(self, method, path, body=None, *, secret=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=100)
        try:
            data = None if body is None else json.dumps(body)
            given = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, f"/k/{secret or self.secret}/{path}", data, given)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def predict(self, *rows):
        tasks = [{"id": row + 1, "data": {"key": str(row), "image": "x"}, "annotations": []} for row in rows]
        params = {"login": None, "password": None, "context": None}
        body = {"tasks": tasks, "project": "2.1794838184", "label_config": SCHEMA, "params": params}
        status, answer = self.ask("POST", "predict", body)
        assert status == 200 and len(answer["results"]) == len(rows)
        return answer["results"]

    def annotate(self, row, name, *, action="ANNOTATION_CREATED", number=None, at="2026-01-01"):
        choice = {"from_name": "what", "to_name": "img", "type": "choices", "value": {"choices": [name]}}
        annotation = {"id": number or row + 1000, "result": [choice] if name else [], "updated_at": at}
        task = {"id": row + 1, "data": {"key": str(row), "image": "x"}}
        body = {"action": action, "annotation": annotation, "task": task, "project": {"id": 2}}
        started = time.monotonic()
        status, _ = self.ask("POST", "webhook", body)
        assert status == 201
        return time.monotonic() - started


@pytest.fixture(scope="module")
def studio(page_client, tmp_path_factory):
    project = tmp_path_factory.mktemp("studio") / "digits.a2lp"
    with page_client.Backend("digits", "--project", project) as server:
        found = LabelStudio(server.port, server.token)
        found.project = project
        yield found


def test_it_learns_from_annotations_and_forgets_deleted_ones(studio):
    assert studio.ask("GET", "health") == (200, {"status": "UP", "model_class": "a2lp"})
    setup = {"project": "2.1794838184", "schema": SCHEMA, "hostname": "http://127.0.0.1:8080", "extra_params": None}
    status, first = studio.ask("POST", "setup", setup | {"access_token": "SECRET-OF-LABEL-STUDIO"})
    assert status == 200 and first["model_version"]
    assert studio.predict(5)[0]["result"] == []  # nothing is known yet
    rows = [row for row in range(300) if TRUTH[row] in "012"]
    for row in rows[:12]:
        studio.annotate(row, TRUTH[row])
    results = studio.predict(*rows[12:60])
    versions = {result["model_version"] for result in results}
    assert len(versions) == 1 and versions != {first["model_version"]}
    for result in results:
        assert result["result"][0]["from_name"] == "what" and result["result"][0]["to_name"] == "img"
        assert result["result"][0]["type"] == "choices" and 0 < result["score"] <= 1
    named = [result["result"][0]["value"]["choices"][0] for result in results]
    assert sum(name == TRUTH[row] for name, row in zip(named, rows[12:60], strict=True)) >= 40
    # a corrected one, and the same news once more
    studio.annotate(rows[0], "1", action="ANNOTATION_UPDATED", at="2026-01-02")
    studio.annotate(rows[0], "1", action="ANNOTATION_UPDATED", at="2026-01-02")
    own = studio.predict(rows[0])[0]
    assert own["result"][0]["value"]["choices"] == ["1"] and own["score"] == 1 and own["model_version"] not in versions
    status, _ = studio.ask(
        "POST", "webhook", {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": rows[0] + 1000}]}
    )
    assert status == 201
    after = studio.predict(rows[0])[0]
    assert after["score"] < 1 and after["model_version"] != own["model_version"]
    lines = (studio.project / "labels.jsonl").read_text()
    assert len(lines.splitlines()) == 14 and "SECRET-OF" not in lines


def test_tasks_it_does_not_know_and_news_it_does_not_need(studio):
    tasks = [{"id": 1, "data": {"image": "/data/upload/1/zebra.jpg"}}, {"id": 2}, "x"]
    status, answer = studio.ask("POST", "predict", {"tasks": tasks, "label_config": SCHEMA})
    assert status == 200 and [result["result"] for result in answer["results"]] == [[], [], []]
    before = (studio.project / "labels.jsonl").read_text()
    for news in (
        {"action": "START_TRAINING", "project": {"id": 2}},
        {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 99999}, "x", {}]},
        {
            "action": "ANNOTATION_CREATED",
            "annotation": {"id": 7, "was_cancelled": True},
            "task": {"data": {"key": "3"}},
        },
        {"action": "ANNOTATION_CREATED", "annotation": None},
        {},
    ):
        assert studio.ask("POST", "webhook", news)[0] == 201
    studio.predict(3)
    assert (studio.project / "labels.jsonl").read_text() == before
    assert studio.ask("POST", "predict", {"tasks": "x"})[0] == 400


def test_nothing_is_answered_without_the_secret(studio):
    for path in ("health", "setup", "predict", "webhook", ""):
        for method in ("GET", "POST"):
            assert studio.ask(method, path, {}, secret="x")[0] == 403
            assert studio.ask(method, path, {}, headers={"Origin": "http://127.0.0.1:8080"})[0] == 403
            assert studio.ask(method, path, {}, headers={"Host": "evil.example"})[0] == 403
    assert stat.S_IMODE((studio.project / "label_studio_secret").stat().st_mode) == 0o600


def test_interfaces_and_file_names():
    assert read_interface(SCHEMA) == Interface("what", "img", ("0", "1", "2"))
    assert read_interface("<View><Image name='i'/></View>") is None and read_interface(None) is None
    find = Finder(["a/cat 1.jpg", "b/dog.jpg", "c/dog.jpg", "top.png"])
    for address, row in (
        ("/data/local-files/?d=photos/a/cat%201.jpg", 0),
        ("/data/local-files/?d=b%2Fdog.jpg", 1),
        ("s3://bucket/pool/c/dog.jpg", 2),
        ("/data/upload/3/0a1b2c3d-top.png", 3),
        ("https://host/x/dog.jpg", None),
        ("http://[bad", None),
        ("", None),
    ):
        assert find({"data": {"image": address}}) == row, address

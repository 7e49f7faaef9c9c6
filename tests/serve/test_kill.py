"""kill -9 at any moment: what was acknowledged is there afterwards."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from a2lp.serve.log import Log

WRITER = """
import sys
from pathlib import Path
from a2lp.serve.log import Lock, Log
folder = Path(sys.argv[1])
lock, log = Lock(folder / "lock", "writer"), Log(folder / "labels.jsonl")
for number in range(len(log.lines), 10**9):
    line = log.append({"id": f"c{number}", "op": "label", "keys": [f"photo {number}.jpg"] * (1 + number % 700)})
    sys.stdout.write(f"{line['seq']}\\n")
    sys.stdout.flush()
"""


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path):
    chance = random.Random(0)
    for _ in range(20):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        first = int(writer.stdout.readline())
        time.sleep(chance.uniform(0, 0.02))
        writer.kill()
        acknowledged = [
            first,
            *(int(line) for line in writer.stdout.read().splitlines(keepends=True) if line[-1] == "\n"),
        ]
        writer.wait()
        writer.stdout.close()
        log = Log(tmp_path / "labels.jsonl")
        log.close()
        # one more may have been written, and killed before it said so
        assert len(log.lines) - acknowledged[-1] in (0, 1)
        assert [len(line["keys"]) for line in log.lines] == [1 + number % 700 for number in range(len(log.lines))]


def test_a_killed_server_comes_back_with_all_labels(page_client, tmp_path):
    chance, acknowledged = random.Random(1), {}

    def label(first: int, server: Any) -> None:
        try:
            with page_client.Client(server) as tab:
                for row in range(first, first + 190):
                    tab.do("label", rows=[row], label=f"class {row % 7}")
                    acknowledged[row] = f"class {row % 7}"
        except (OSError, RuntimeError, json.JSONDecodeError, page_client.http.client.HTTPException):
            pass  # killed

    for round in range(3):
        server = page_client.Server("--project", tmp_path / "demo.a2lp")
        with page_client.Client(server) as client:
            client.ready()
            _, classes, _, _ = client.rows()
            state = client.state()
        names = page_client.names_of(state, classes)
        assert {row: names[row] for row in acknowledged} == acknowledged
        assert state["counts"]["yours"] - len(acknowledged) in range(
            3 * round + 1
        )  # written, not acknowledged: three tabs

        tabs = [threading.Thread(target=label, args=(600 * round + 200 * place, server)) for place in range(3)]
        for thread in tabs:
            thread.start()
        enough, end = len(acknowledged) + chance.randint(1, 40), time.monotonic() + 60
        while len(acknowledged) < enough and time.monotonic() < end:
            time.sleep(0.001)
        server.kill()
        for thread in tabs:
            thread.join()
    assert len(acknowledged) > 10
    with page_client.Server("--project", tmp_path / "demo.a2lp") as server, page_client.Client(server) as client:
        client.ready()
        _, classes, _, _ = client.rows()
        names = page_client.names_of(client.state(), classes)
    assert {row: names[row] for row in acknowledged} == acknowledged


def test_a_server_comes_back_on_its_port_if_that_is_free(page_client, tmp_path):
    where = "--project", tmp_path / "demo.a2lp"
    with page_client.Server(*where) as first:
        pass
    with page_client.Server(*where) as second:
        assert second.port == first.port
    with socket.create_server(("127.0.0.1", first.port)), page_client.Server(*where) as third:
        assert third.port != first.port
    with page_client.Server(*where) as fourth:
        assert fourth.port == third.port

"""The labelling page without a browser: what its server promises, on real processes over loopback.

    .venv/bin/python benchmarks/page.py                      # everything; about half an hour on two quiet cores
    .venv/bin/python benchmarks/page.py --only kills,tabs    # some parts
    .venv/bin/python benchmarks/page.py --quick              # small, printed and not kept

Each part starts ``a2lp serve`` in a process of its own and talks to it as the page does; ``page_browser.py`` measures
what needs a browser. Times are of this machine, whose load is kept beside them. Points of the parts about speed are
made up (50 classes that overlap, 256 dimensions, as in ``pool.py``).
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from page_client import Backend, Client, Server, fold, names_of, routes, strangers
from study import RECORDS, Record

import a2lp
from pool import CLASSES, make_file

RECORD = RECORDS / "page.json"
DIMENSIONS = 256
LABELS = 5  # for each class, before speed is measured


def points(folder: Path, n: int) -> Path:
    path = folder / f"points_{n}.npy"
    if not path.exists():
        make_file(path, n, DIMENSIONS)
    return path


def class_of(row: int) -> str:
    return f"class {row % CLASSES}"


def seconds(work: Callable[[], Any]) -> float:
    started = time.monotonic()
    work()
    return round(time.monotonic() - started, 3)


def percentiles(times: list[float]) -> dict[str, float]:
    found = np.percentile(1000 * np.array(times), [50, 95, 99, 100])
    return dict(zip(("p50_ms", "p95_ms", "p99_ms", "max_ms"), np.round(found, 1).tolist(), strict=True))


def label_some(client: Client) -> None:
    for code in range(CLASSES):
        client.do("label", rows=[code + CLASSES * place for place in range(LABELS)], label=f"class {code}")


def start(folder: Path, n: int) -> dict[str, Any]:
    """Seconds from the command to a grid that can be used, with vectors and graph in the project's cache."""
    source = points(folder, n)
    with Server(source) as server, Client(server) as client:
        client.ready(1800)
        label_some(client)
    with Server(source) as server, Client(server) as client:
        client.ready()
        client.rows()
        usable = time.monotonic() - server.started
        client.wait(lambda state: not state["settling"], 600)
        answered = time.monotonic() - server.started
    return {"usable_s": round(usable, 2), "full_answer_s": round(answered, 2)}


def answers(folder: Path, n: int) -> dict[str, Any]:
    """Seconds from one more label to its acknowledgement, to the rows it touches, and to the full answer."""
    acknowledged, touched, full = [], [], []
    with Server(points(folder, n)) as server, Client(server) as client:
        client.ready(1800)
        label_some(client)
        client.settled()
        tab = client.tab()
        for row in range(1000, 1010):
            started = time.monotonic()
            seq = client.do("label", rows=[row], label=class_of(row))["seq"]
            acknowledged.append(time.monotonic() - started)
            tab.until(seq)
            touched.append(time.monotonic() - started)
            client.wait(lambda state: not state["settling"], 600)
            full.append(time.monotonic() - started)
        tab.close()
    return {"acknowledged": percentiles(acknowledged), "touched": percentiles(touched), "full": percentiles(full)}


def burst(folder: Path) -> dict[str, Any]:
    """Twenty labels in four seconds: full answers until all is computed, and whether it equals ``a2lp classify``."""
    digits = a2lp.load("digits")
    truth = [str(label) for label in digits.labels]
    rows = np.random.default_rng(0).permutation(len(truth))[:60].tolist()
    with Server("--project", folder / "burst.a2lp") as server, Client(server) as client:
        client.ready()
        for row in rows[:40]:
            client.do("label", rows=[row], label=truth[row])
        before = client.settled()["solves"]
        started = time.monotonic()
        for place, row in enumerate(rows[40:]):
            time.sleep(max(0, started + 0.2 * place - time.monotonic()))
            client.do("label", rows=[row], label=truth[row])
        took = time.monotonic() - started
        state = client.settled()
        _, classes, confidence, _ = client.rows()
    given = np.full(len(truth), None, dtype=object)
    given[rows] = [truth[row] for row in rows]
    expected = a2lp.label(digits.features, given)
    same = names_of(state, classes) == expected.table["label"].tolist()
    apart = float(np.abs(confidence / 255 - expected.table["confidence"]).max())
    return {
        "seconds": round(took, 1),
        "answers": state["solves"] - before,
        "equal_to_classify": same,
        "confidence_apart": round(apart, 4),
    }


def no_ops(folder: Path, n: int) -> dict[str, Any]:
    """Milliseconds of commands that change nothing, while the solver works on an answer."""
    times: list[float] = []
    labels: list[float] = []
    with Server(points(folder, n)) as server, Client(server) as client, Client(server) as other:
        client.ready(1800)
        label_some(client)
        client.settled()
        for round in range(10):
            row = 1500 + round
            labels.append(seconds(lambda: client.do("label", rows=[row], label=class_of(row))))  # noqa: B023
            for _ in range(600):
                times.append(seconds_exact(lambda: other.do("noop")))
                if len(times) % 20 == 0 and not other.state()["settling"]:
                    break
    return {"no_op": percentiles(times), "no_ops": len(times), "label": percentiles(labels)}


def seconds_exact(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def kills(folder: Path, times: int) -> dict[str, Any]:
    """kill -9 while three tabs label: acknowledged labels that were lost, and seconds until the server is back."""
    chance, acknowledged, lost, back = random.Random(0), {}, 0, []

    def work(server: Server, first: int) -> None:
        try:
            with Client(server) as tab:
                for row in range(first, first + 150):
                    name = f"class {chance.randrange(5)}"
                    tab.do("label", rows=[row], label=name)
                    acknowledged[row] = name
        except (OSError, http.client.HTTPException, RuntimeError, ValueError, KeyError, AssertionError):
            return  # killed

    for _ in range(times + 1):
        server = Server("--project", folder / "kills.a2lp")
        with Client(server) as client:
            client.ready()
            back.append(time.monotonic() - server.started)
            _, classes, _, _ = client.rows()
            names = names_of(client.state(), classes)
            lost += sum(names[row] != name for row, name in acknowledged.items())
        if len(back) > times:
            server.stop()
            break
        acknowledged.clear()
        tabs = [threading.Thread(target=work, args=(server, 500 * place)) for place in range(3)]
        for thread in tabs:
            thread.start()
        enough, end = chance.randint(1, 60), time.monotonic() + 60
        while len(acknowledged) < enough and time.monotonic() < end:
            time.sleep(0.001)
        server.kill()
        for thread in tabs:
            thread.join()
    return {"kills": times, "lost": lost, "restart_s": percentiles(back[1:])}


def undos(folder: Path, n: int) -> dict[str, Any]:
    """Random commands with bulks, then all of them undone in any order: the page against a fold from scratch."""
    chance, wrong, done = random.Random(0), 0, 0
    project = folder / "undos.a2lp"

    def compare(client: Client) -> int:
        lines = [json.loads(line) for line in (project / "labels.jsonl").read_text(encoding="utf-8").splitlines()]
        kept, _, _ = fold(lines)
        _, classes, _, flags = client.rows()
        bit = {"yours": 1, "accepted": 2, "accepted_unseen": 4, "rejected": 32}
        expected = np.zeros(len(flags), np.uint8)
        for key, (kind, code) in kept.items():
            expected[int(key)] = bit[kind]
            if kind != "rejected" and classes[int(key)] != code:
                return 1
        return int(((flags & 39) != expected).any())

    with Server("--project", project) as server, Client(server) as client:
        client.ready()
        while done < n:  # some are refused
            rows = [chance.randrange(1797) for _ in range(chance.choice([1, 1, 1, 5, 300]))]
            names = [f"class {chance.randrange(6)}", f"class {chance.randrange(6)}"]
            command = chance.choice(
                [
                    {"op": "label", "rows": rows, "label": names[0]},
                    {"op": "label", "rows": rows, "label": names[1]},
                    {"op": "accept", "rows": rows, "labels": [0] * len(set(rows))},
                    {"op": "accept_unseen", "rows": rows, "labels": [0] * len(set(rows))},
                    {"op": "reject", "rows": rows},
                    {"op": "clear", "rows": rows},
                    {"op": "merge", "label": names[0], "to": names[1]},
                    {"op": "rename", "label": names[0], "to": f"{names[0]}!"},
                    {"op": "undo", "seq": chance.randint(1, max(1, done))},
                ]
            )
            try:
                done = client.do(**command)["seq"]
            except RuntimeError:  # refused, such as a class that does not exist
                continue
        wrong += compare(client)
        order = list(range(1, done + 1))
        chance.shuffle(order)
        for place, seq in enumerate(order):
            try:
                client.do("undo", seq=seq)
            except RuntimeError:
                continue
            if place % 50 == 0:
                wrong += compare(client)
        wrong += compare(client)
    return {"commands": done, "differences": wrong}


def tabs(folder: Path, n: int) -> dict[str, Any]:
    """Eight tabs: milliseconds from the last command's acknowledgement until all of them show the same rows."""
    with Server("--project", folder / "tabs.a2lp") as server, Client(server) as client:
        client.ready()
        for row in range(20):
            client.do("label", rows=[row], label=f"class {row % 4}")
        client.settled()
        pages = [client.tab() for _ in range(n)]
        times, equal = [], True
        for round in range(20):
            seq = client.do("label", rows=[100 + round], label=f"class {round % 4}")["seq"]
            started = time.monotonic()
            for page in pages:
                page.until(seq)
            times.append(time.monotonic() - started)
        client.settled()
        digests = set()
        for page in pages:
            page.drain()
            assert page.arrays is not None
            digests.add(hashlib.sha256(b"".join(array.tobytes() for array in page.arrays)).hexdigest())
            page.close()
        equal = len(digests) == 1
    return {"tabs": n, "shown": percentiles(times), "equal_at_the_end": equal}


def webhook(folder: Path) -> dict[str, Any]:
    """Milliseconds until a webhook of Label Studio is answered, while the backend learns from those before it."""
    times = []
    with Backend("digits", "--project", folder / "webhook.a2lp") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for row in range(100):
            result = [{"from_name": "c", "to_name": "i", "type": "choices", "value": {"choices": [f"class {row % 5}"]}}]
            news = {"action": "ANNOTATION_CREATED", "annotation": {"id": row, "result": result}}
            body = json.dumps(news | {"task": {"id": row, "data": {"key": str(row)}}})
            started = time.perf_counter()
            connection.request("POST", f"/k/{server.token}/webhook", body)
            answer = connection.getresponse()
            answer.read()
            times.append(time.perf_counter() - started)
            assert answer.status == 201
        connection.close()
    return {"webhook": percentiles(times)}


def gate(folder: Path) -> dict[str, Any]:
    """Requests of strangers to every route, and how many of them were not refused."""
    asked, entered = 0, []
    with Server("--project", folder / "gate.a2lp") as server, Client(server) as client:
        client.ready()
        for method, path in routes():
            for what, headers in strangers(client, method):
                asked += 1
                if client.raw(method, path, headers)[0] != 403:
                    entered.append([method, path, what])
        changed = client.state()["seq"]
    return {"routes": len(routes()), "requests": asked, "entered": entered, "labels_changed": changed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="parts, separated by commas")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    few = options.quick
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = [2_000] if few else [10_000, 100_000]
        parts: dict[str, Callable[[], Any]] = {
            **{f"start {n}": (lambda n=n: start(folder, n)) for n in sizes},
            **{f"answers {n}": (lambda n=n: answers(folder, n)) for n in sizes},
            "burst": lambda: burst(folder),
            f"no_ops {sizes[0]}": lambda: no_ops(folder, sizes[0]),
            "kills": lambda: kills(folder, 3 if few else 100),
            "undos": lambda: undos(folder, 60 if few else 500),
            "tabs": lambda: tabs(folder, 8),
            "gate": lambda: gate(folder),
            "webhook": lambda: webhook(folder),
        }
        wanted = [part for part in parts if not options.only or part.split()[0] in options.only.split(",")]
        record = None if few else Record(RECORD, "The labelling page: its server, without a browser.")
        for part in wanted:

            def work(part: str = part) -> Any:
                before = os.getloadavg()[0]
                return parts[part]() | {"load": [round(before, 1), round(os.getloadavg()[0], 1)]}

            if record is None:
                print(part, work(), flush=True)
            else:
                record.measure(part, work)
                print(part, record.result(part), flush=True)


if __name__ == "__main__":
    main()

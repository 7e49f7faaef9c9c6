"""``a2lp label-studio`` behind the real Label Studio: annotate, delete, and see new predictions.

    python -m venv /tmp/studio && /tmp/studio/bin/pip install label-studio==1.23.2    # 1 GB
    .venv/bin/python benchmarks/page_label_studio.py /tmp/studio/bin/label-studio

Starts both on loopback with the digits as tasks, adds the backend through Label Studio's own API, annotates twelve
tasks, deletes an annotation, and looks at the predictions that Label Studio then holds. The record is page.json's.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from page import RECORD
from page_client import Backend
from study import Record

import a2lp

TOKEN = "0123456789abcdef0123456789abcdef01234567"
SETTINGS = {
    "SENTRY_DSN": "",
    "FRONTEND_SENTRY_DSN": "",
    "COLLECT_ANALYTICS": "false",
    "LATEST_VERSION_CHECK": "false",
    "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
    "ML_BLOCK_LOCAL_IP": "false",
    "SSRF_PROTECTION_ENABLED": "false",
}
CONFIG = '<View><Image name="img" value="$image"/><Choices name="what" toName="img">{}</Choices></View>'.format(
    "".join(f'<Choice value="{digit}"/>' for digit in range(10))
)


class Studio:
    """A running Label Studio."""

    def __init__(self, program: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        user = ["--username", "a@example.com", "--password", "not-a-secret-1", "--user-token", TOKEN]
        where = ["--data-dir", str(folder), "--internal-host", "127.0.0.1", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [program, "start", "--no-browser", *where, *user],
            env=os.environ | SETTINGS,
            stdout=(folder / "log.txt").open("wb"),
            stderr=subprocess.STDOUT,
        )
        self.until(lambda: self.ask("GET", "/api/version"), 600)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """JSON of Label Studio's API."""
        headers = {"Authorization": f"Token {TOKEN}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=110) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def until(self, work: Callable[[], Any], seconds: float) -> Any:
        """The first result that is not empty."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if found := work():
                    return found
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                if self.process.poll() is not None:
                    raise RuntimeError("Label Studio has ended") from None
            time.sleep(0.5)
        raise TimeoutError("Label Studio did not get there")

    def predictions(self, project: int, backend: int) -> dict[int, dict[str, Any]]:
        """What Label Studio holds for each task after it was told to ask the backend."""
        items = {"selectedItems": {"all": True, "excluded": []}}
        self.ask("POST", f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}", items)
        found = self.ask("GET", f"/api/predictions?project={project}&page_size=1000")
        every = found["results"] if isinstance(found, dict) else found
        newest: dict[int, dict[str, Any]] = {}
        for one in sorted(every, key=lambda one: one["id"]):
            newest[one["task"]] = one
        return newest


def trial(program: str) -> dict[str, Any]:
    digits = a2lp.load("digits")
    truth = [str(label) for label in digits.labels]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "studio").mkdir()
        started = time.monotonic()
        studio = Studio(program, folder / "studio")
        up = time.monotonic() - started
        try:
            with Backend("digits", "--project", folder / "digits.a2lp") as server:
                project = studio.ask("POST", "/api/projects", {"title": "digits", "label_config": CONFIG})["id"]
                tasks = [{"data": {"key": str(row), "image": f"/{row}.png"}} for row in range(60)]
                studio.ask("POST", f"/api/projects/{project}/import", tasks)
                address = f"http://127.0.0.1:{server.port}/k/{server.token}"
                backend = studio.ask("POST", "/api/ml", {"project": project, "url": address, "title": "a2lp"})
                listed = studio.ask("GET", f"/api/tasks?project={project}&page_size=100")["tasks"]
                ids = {task["data"]["key"]: task["id"] for task in listed}
                hooks = [hook["url"] for hook in studio.ask("GET", f"/api/webhooks?project={project}")]
                annotated, times = {}, []
                for row in range(12):
                    value = {"choices": [truth[row]]}
                    choice = {"from_name": "what", "to_name": "img", "type": "choices", "value": value}
                    begun = time.monotonic()
                    made = studio.ask("POST", f"/api/tasks/{ids[str(row)]}/annotations/", {"result": [choice]})
                    times.append(time.monotonic() - begun)
                    annotated[row] = made["id"]
                first = studio.until(lambda: _learned(studio, project, backend["id"], folder, 12), 120)
                studio.ask("DELETE", f"/api/annotations/{annotated[0]}/")
                second = studio.until(lambda: _learned(studio, project, backend["id"], folder, 13), 120)
        finally:
            studio.process.terminate()
            studio.process.wait(60)
    right = [
        one["result"][0]["value"]["choices"][0] == truth[int(key)]
        for key, task in ids.items()
        if (one := second.get(task)) and one["result"] and int(key) >= 12
    ]
    versions = [sorted({one["model_version"] for one in found.values()}) for found in (first, second)]
    return {
        "start_s": round(up, 1),
        "backend_state": backend["state"],
        "webhook_added": any(url.startswith(address) for url in hooks),
        "annotation_s": round(max(times), 2),
        "versions": versions,
        "predicted": len(right),
        "right": sum(right),
    }


def _learned(studio: Studio, project: int, backend: int, folder: Path, lines: int) -> dict[int, dict[str, Any]] | None:
    """The predictions, once the backend's log has this many lines."""
    log = folder / "digits.a2lp" / "labels.jsonl"
    if len(log.read_bytes().splitlines()) < lines:
        return None
    return studio.predictions(project, backend)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the label-studio of another environment")
    program = parser.parse_args().program
    said = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout
    version = said.partition("Label Studio version:")[2].split()[0]
    record = Record(RECORD, "The labelling page: its server, without a browser.")
    record.measure("label_studio", lambda: trial(program), version=version)
    print(json.dumps(record.result("label_studio"), indent=1))


if __name__ == "__main__":
    main()

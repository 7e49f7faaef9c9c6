"""A server of the page in a process of its own, and a client that talks to it as the page does, without a browser."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, RejectConnection, Request, TextMessage

Array = np.ndarray[Any, Any]


class Server:
    """``a2lp serve ARGUMENTS --no-browser`` on a free port; also a context manager."""

    command = ("serve", "--no-browser")
    opened = r"Open http://127\.0\.0\.1:(\d+)/\?token=(\S+)"

    def __init__(self, *arguments: str | Path, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "a2lp", *self.command, *map(str, arguments)]
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(env or {})}
        )
        assert self.process.stdout is not None
        printed = ""
        for line in self.process.stdout:
            printed += line
            if found := re.search(self.opened, line):
                self.port, self.token = int(found[1]), found[2]
                return
        self.process.wait()
        self.process.stdout.close()
        raise RuntimeError(f"the server ended with {self.process.returncode}: {printed}")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, how: int = signal.SIGINT) -> int:
        """End the server; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return int(self.process.returncode)

    def kill(self) -> None:
        """kill -9."""
        self.stop(signal.SIGKILL)


class Backend(Server):
    """``a2lp label-studio ARGUMENTS`` on a free port; its token is the secret of the address."""

    command = ("label-studio", "--port", "0")
    opened = r"http://127\.0\.0\.1:(\d+)/k/(\S+)"


class Client:
    """A page that was opened by the printed address."""

    def __init__(self, server: Server) -> None:
        self.port = server.port
        self.host = f"127.0.0.1:{server.port}"
        self.http = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        try:
            _, headers, _ = self.request("GET", f"/?token={server.token}", {})
            self.cookie = headers["set-cookie"].split(";")[0]
            found = re.search(r'name="a2lp-key" content="([^"]+)"', self.get("/").decode())
            assert found is not None
            self.key = found[1]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.http.close()

    def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer; by default with cookie and key."""
        if headers is None:
            headers = {"Cookie": self.cookie} | ({"X-A2LP-Key": self.key} if method != "GET" else {})
        try:
            self.http.request(method, path, body, headers)
            answer = self.http.getresponse()
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):  # the server closes idle ones
            self.http.close()
            self.http.request(method, path, body, headers)
            answer = self.http.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def get(self, path: str) -> bytes:
        """The body of a page's request."""
        status, _, body = self.request("GET", path)
        if status != 200:
            raise RuntimeError(f"{path}: {status} {body[:300]!r}")
        return body

    def json(self, path: str) -> Any:
        """The same, as JSON."""
        return json.loads(self.get(path))

    def post(self, path: str, value: Any) -> tuple[int, Any]:
        """Status and JSON of a page's command."""
        status, _, body = self.request("POST", path, None, json.dumps(value).encode())
        return status, json.loads(body)

    def do(self, op: str, **more: Any) -> dict[str, Any]:
        """A command; what was acknowledged."""
        status, answer = self.post("/api/commands", {"id": uuid.uuid4().hex, "op": op, **more})
        if status != 200:
            raise RuntimeError(f"{op}: {status} {answer}")
        return dict(answer)

    def state(self) -> dict[str, Any]:
        """``/api/state``."""
        return dict(self.json("/api/state"))

    def rows(self) -> tuple[int, Array, Array, Array]:
        """Seq, and the class, confidence and flags of each row."""
        return read_rows(self.get("/api/rows"))

    def wait(self, enough: Callable[[dict[str, Any]], Any], seconds: float = 120) -> dict[str, Any]:
        """The first state that is enough."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            state = self.state()
            if state["phase"] == "failed":
                raise RuntimeError(state["message"])
            if enough(state):
                return state
            time.sleep(0.02)
        raise TimeoutError(f"still {str(state)[:500]}")

    def ready(self, seconds: float = 300) -> dict[str, Any]:
        """Wait until the grid can be used."""
        return self.wait(lambda state: state["phase"] == "ready", seconds)

    def settled(self) -> dict[str, Any]:
        """Wait until the estimate is that of the last command."""
        return self.wait(
            lambda s: not s["settling"] and s["accuracy"] is not None and s["accuracy"]["seq"] == s["seq"], 300
        )

    def raw(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str, str]:
        """Status, headers in lower case, and body, with nothing added to the request; a POST carries a label."""
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        body = json.dumps({"id": "x", "op": "label", "rows": [0], "label": "evil"}) if method == "POST" else ""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            text = "\r\n".join([*lines, f"Content-Length: {len(body)}", "Connection: close", "", body])
            connection.sendall(text.encode())
            data = b""
            while part := connection.recv(1 << 16):
                data += part
        head, _, body = data.decode("latin-1").partition("\r\n\r\n")
        return int(head.split()[1]), head.lower(), body

    def tab(self, **headers: str) -> Tab:
        """One more socket."""
        return Tab(self, headers)


class Tab:
    """A socket of the page, and the rows as it knows them."""

    def __init__(self, client: Client, headers: dict[str, str] | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", client.port), timeout=30)
        self.protocol = WSConnection(ConnectionType.CLIENT)
        extra = {"Origin": f"http://{client.host}", "Cookie": client.cookie} | (headers or {})
        host = extra.pop("Host", client.host)
        lines = [(name.encode(), value.encode()) for name, value in extra.items() if value]
        self.socket.sendall(self.protocol.send(Request(host=host, target="/ws?seq=0", extra_headers=lines)))
        self.refused = 0
        self.states: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self.seq = -1
        self.arrays: tuple[Array, Array, Array] | None = None
        self._text, self._data, self.open = "", b"", False
        while not self.open and not self.refused:
            self.read()

    def read(self) -> None:
        """Take in what has come, waiting for something."""
        data = self.socket.recv(1 << 20)
        self.protocol.receive_data(data or None)
        for event in self.protocol.events():
            if isinstance(event, AcceptConnection):
                self.open = True
            elif isinstance(event, RejectConnection):
                self.refused = event.status_code
            elif isinstance(event, CloseConnection):
                self.open = False
            elif isinstance(event, TextMessage):
                self._text += event.data
                if event.message_finished:
                    message, self._text = json.loads(self._text), ""
                    (self.states if message["type"] == "state" else self.messages).append(message)
            elif isinstance(event, BytesMessage):
                self._data += event.data
                if event.message_finished:
                    data, self._data = self._data, b""
                    self._update(data)

    def until(self, seq: int, seconds: float = 30) -> None:
        """Read until rows of this command have come."""
        end = time.monotonic() + seconds
        while self.seq < seq:
            if time.monotonic() > end:
                raise TimeoutError(f"seq {self.seq}, not {seq}")
            self.read()

    def drain(self, seconds: float = 0.3) -> None:
        """Read until nothing has come for a while."""
        self.socket.settimeout(seconds)
        try:
            for _ in range(100_000):
                self.read()
        except TimeoutError:
            pass
        finally:
            self.socket.settimeout(30)

    def close(self) -> None:
        """Close the socket without a word, as a browser that is killed."""
        self.socket.close()

    def _update(self, data: bytes) -> None:
        seq, count = struct.unpack_from("<II", data)
        if count == 0xFFFFFFFF:
            n = (len(data) - 8) // 4
            _, *arrays = read_rows(struct.pack("<II", seq, n) + data[8:])
            self.arrays = tuple(array.copy() for array in arrays)
        else:
            kind = np.dtype([("row", "<u4"), ("class", "<u2"), ("confidence", "u1"), ("flags", "u1")])
            changed = np.frombuffer(data, kind, count, 8)
            assert self.arrays is not None
            for array, name in zip(self.arrays, ("class", "confidence", "flags"), strict=True):
                array[changed["row"]] = changed[name]
        self.seq = seq


def routes() -> list[tuple[str, str]]:
    """Every route of the application by method and path, with something in the place of its parameters."""
    from starlette.routing import Route, WebSocketRoute

    from a2lp.serve.app import make_app

    found = []
    for route in make_app(None, None, str).routes:
        assert isinstance(route, Route | WebSocketRoute), f"{route}: is it behind the gate?"
        if isinstance(route, Route):
            path = re.sub(r"\{\w+:int\}", "128", route.path.replace("{name}", "app.js"))
            found += [(method, path) for method in sorted(route.methods or ()) if method != "HEAD"]
    return found


def strangers(client: Client, method: str) -> list[tuple[str, dict[str, str]]]:
    """Headers of requests that are not the page's, each with what is wrong."""
    good = {"Host": client.host, "Cookie": client.cookie, "X-A2LP-Key": client.key}
    name = client.cookie.partition("=")[0]
    found = [
        ("host", good | {"Host": "evil.example"}),
        ("host of another port", good | {"Host": "127.0.0.1:1"}),
        ("rebound host", good | {"Host": f"127.0.0.1.evil.example:{client.port}"}),
        ("origin", good | {"Origin": "http://evil.example"}),
        ("null origin", good | {"Origin": "null"}),
        ("https origin", good | {"Origin": f"https://{client.host}"}),
        ("site", good | {"Sec-Fetch-Site": "cross-site"}),
        ("same site", good | {"Sec-Fetch-Site": "same-site"}),
        ("no cookie", {"Host": client.host, "X-A2LP-Key": client.key}),
        ("wrong cookie", good | {"Cookie": f"{name}=x"}),
        ("empty cookie", good | {"Cookie": f"{name}="}),
        ("cookie of another port", good | {"Cookie": client.cookie.replace(name, "a2lp-1")}),
    ]
    if method != "GET":
        found += [
            ("no key", {"Host": client.host, "Cookie": client.cookie}),
            ("wrong key", good | {"X-A2LP-Key": "x"}),
            ("cookie as key", good | {"X-A2LP-Key": client.cookie.partition("=")[2]}),
        ]
    return found


def read_rows(data: bytes) -> tuple[int, Array, Array, Array]:
    """``/api/rows``, unpacked."""
    seq, n = struct.unpack_from("<II", data)
    assert len(data) == 8 + 4 * n
    parts = (np.frombuffer(data, "<u2", n, 8), np.frombuffer(data, "u1", n, 8 + 2 * n))
    return seq, *parts, np.frombuffer(data, "u1", n, 8 + 3 * n)


def names_of(state: dict[str, Any], codes: Sequence[int] | Array) -> list[str | None]:
    """Names of classes by number."""
    name = {one["id"]: one["name"] for one in state["classes"]}
    return [name.get(int(code)) for code in codes]


def fold(lines: list[dict[str, Any]]) -> tuple[dict[str, tuple[str, int]], dict[int, str], dict[int, int]]:
    """The log folded from scratch: each point's kind and class, names of classes, and what they were merged into.

    Written without a look at ``a2lp.serve.state``: what counts is decided first, then the lines that do are replayed.
    """
    counts = {line["seq"]: True for line in lines}
    for line in reversed(lines):  # an undo is decided by later lines alone
        if line["op"] == "undo" and counts[line["seq"]]:
            counts[line["undoes"]] = False
    names: dict[int, str] = {}
    for line in lines:
        for code, name in (("class", "label"), ("to_class", "to")):
            if code in line:
                codes = line[code] if isinstance(line[code], list) else [line[code]]
                texts = line[name] if isinstance(line[name], list) else [line[name]] * len(codes)
                for one, text in zip(codes, texts, strict=True):
                    names.setdefault(one, text)
    into = {code: code for code in names}
    points: dict[str, tuple[str, int]] = {}
    for line in lines:
        if not counts[line["seq"]]:
            continue
        if line["op"] == "rename":
            names[line["class"]] = line["to"]
        elif line["op"] == "merge":
            one, other = line["class"], line["to_class"]
            into = {code: (into[other] if root == into[one] else root) for code, root in into.items()}
        elif line["op"] in ("label", "accept", "accept_unseen", "reject", "clear"):
            for place, key in enumerate(line["keys"]):
                code = line.get("class", -1)
                code = code[place] if isinstance(code, list) else code
                mine = points.get(key, ("", -1))[0]
                if line["op"] == "clear":
                    points.pop(key, None)
                elif line["op"] == "label":
                    points[key] = ("yours", code)
                elif line["op"] == "reject":
                    points[key] = ("rejected", -1)
                elif line["op"] == "accept" and mine != "yours":
                    points[key] = ("accepted", code)
                elif line["op"] == "accept_unseen" and mine not in ("yours", "accepted"):
                    points[key] = ("accepted_unseen", code)
    return {key: (kind, into.get(code, -1)) for key, (kind, code) in points.items()}, names, into

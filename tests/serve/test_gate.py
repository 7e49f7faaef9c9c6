"""Nobody but the page gets in: every route and the socket, with everything that can be wrong with a request."""

from __future__ import annotations

import json
import re
import socket

import pytest
from starlette.routing import Route, WebSocketRoute

from a2lp.serve.app import make_app


def paths() -> list[tuple[str, str]]:
    """Every route of the application, with something in the place of its parameters."""
    found = []
    for route in make_app(None, None, str).routes:  # type: ignore[arg-type]
        assert isinstance(route, Route | WebSocketRoute), f"{route}: is it behind the gate?"
        if isinstance(route, Route):
            path = re.sub(r"\{\w+:int\}", "128", re.sub(r"\{name\}", "app.js", route.path))
            found += [(method, path) for method in route.methods or () if method != "HEAD"]
    return found


def wrong(client, method):
    good = {"Host": client.host, "Cookie": client.cookie, "X-A2LP-Key": client.key}
    name = client.cookie.partition("=")[0]
    yield "host", good | {"Host": "evil.example"}
    yield "host of another port", good | {"Host": "127.0.0.1:1"}
    yield "rebound host", good | {"Host": f"127.0.0.1.evil.example:{client.port}"}
    yield "origin", good | {"Origin": "http://evil.example"}
    yield "null origin", good | {"Origin": "null"}
    yield "https origin", good | {"Origin": f"https://{client.host}"}
    yield "site", good | {"Sec-Fetch-Site": "cross-site"}
    yield "same site", good | {"Sec-Fetch-Site": "same-site"}
    yield "no cookie", {"Host": client.host, "X-A2LP-Key": client.key}
    yield "wrong cookie", good | {"Cookie": f"{name}=x"}
    yield "empty cookie", good | {"Cookie": f"{name}="}
    yield "cookie of another port", good | {"Cookie": client.cookie.replace(name, "a2lp-1")}
    if method != "GET":
        yield "no key", {"Host": client.host, "Cookie": client.cookie}
        yield "wrong key", good | {"X-A2LP-Key": "x"}
        yield "cookie as key", good | {"X-A2LP-Key": client.cookie.partition("=")[2]}


def raw(client, method, path, headers):
    """Status and headers, with nothing added to the request."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    body = json.dumps({"id": "x", "op": "label", "rows": [0], "label": "evil"}) if method == "POST" else ""
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        text = "\r\n".join([*lines, f"Content-Length: {len(body)}", "Connection: close", "", body])
        connection.sendall(text.encode())
        data = b""
        while part := connection.recv(1 << 16):
            data += part
    head, _, body = data.decode("latin-1").partition("\r\n\r\n")
    return int(head.split()[1]), head.lower(), body


@pytest.mark.parametrize(("method", "path"), paths())
def test_every_route_refuses_strangers(demo, method, path):
    for what, headers in wrong(demo, method):
        status, head, body = raw(demo, method, path, headers)
        assert status == 403, (what, status)
        assert "content-security-policy: default-src 'none'" in head and "evil" not in body
    assert demo.state()["seq"] == 0
    good = {"Host": demo.host, "Cookie": demo.cookie, "Origin": f"http://{demo.host}", "Sec-Fetch-Site": "same-origin"}
    assert raw(demo, "GET", path, good)[0] != 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_need_the_key_and_lead_nowhere(demo, method):
    assert raw(demo, method, "/api/commands", {"Host": demo.host, "Cookie": demo.cookie})[0] == 403
    status, head, _ = raw(
        demo, method, "/api/commands", {"Host": demo.host, "Cookie": demo.cookie, "X-A2LP-Key": demo.key}
    )
    assert status == 405 and "access-control" not in head


def test_the_socket_refuses_strangers(demo):
    name = demo.cookie.partition("=")[0]
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": ""},
        {"Cookie": ""},
        {"Cookie": f"{name}=x"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        tab = demo.tab(**headers)
        assert tab.refused == 403, headers
        tab.close()
    tab = demo.tab()
    assert tab.open
    tab.close()


def test_the_token_opens_the_page_once_and_leaves_the_address(demo):
    for token, status in ((demo.server.token, 303), ("x", 403), ("", 403)):
        got, head, _ = raw(demo, "GET", f"/?token={token}", {"Host": demo.host})
        assert got == status
    got, head, _ = raw(demo, "GET", f"/?token={demo.server.token}", {"Host": demo.host})
    assert "location: /\r\n" in head + "\r\n" and "httponly; samesite=strict" in head
    assert raw(demo, "GET", f"/?token={demo.server.token}", {"Host": "evil.example"})[0] == 403
    assert raw(demo, "GET", f"/api/state?token={demo.server.token}", {"Host": demo.host})[0] == 403
    twice = {"Host": demo.host, "Cookie": demo.cookie}
    status, head, _ = raw(demo, "GET", "/", twice)
    assert status == 200 and "no-referrer" in head and "nosniff" in head and "no-store" in head


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/..%2f..%2fpyproject.toml",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/web/index.html",
        "/index.html",
        "/__init__.py",
        "/..%5c..%5cetc",
        "/thumb/..%2f..%2fetc/128",
        "/thumb/-1/128",
        "/thumb/0/64",
        "/thumb/99999999999999999999/128",
        "/thumb/1797/128",
        "/image/%2fetc%2fpasswd",
        "/image/0.0",
        "/app.js%00.svg",
    ],
)
def test_no_path_leads_out(demo, path):
    status, _, body = raw(demo, "GET", path, {"Host": demo.host, "Cookie": demo.cookie})
    assert status == 404 and "root:" not in body and "[project]" not in body

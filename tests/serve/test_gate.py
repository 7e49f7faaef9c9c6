"""Nobody but the page gets in: every route and the socket, with everything that can be wrong with a request."""

from __future__ import annotations

import pytest


def test_every_route_refuses_strangers(demo, page_client):
    good = {"Host": demo.host, "Cookie": demo.cookie, "Origin": f"http://{demo.host}", "Sec-Fetch-Site": "same-origin"}
    routes = page_client.routes()
    assert len(routes) > 10
    for method, path in routes:
        for what, headers in page_client.strangers(demo, method):
            status, head, body = demo.raw(method, path, headers)
            assert status == 403, (method, path, what, status)
            assert "content-security-policy: default-src 'none'" in head and "evil" not in body
        assert demo.raw("GET", path, good)[0] != 403
    assert demo.state()["seq"] == 0


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_need_the_key_and_lead_nowhere(demo, method):
    assert demo.raw(method, "/api/commands", {"Host": demo.host, "Cookie": demo.cookie})[0] == 403
    known = {"Host": demo.host, "Cookie": demo.cookie, "X-A2LP-Key": demo.key}
    status, head, _ = demo.raw(method, "/api/commands", known)
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
        got, head, _ = demo.raw("GET", f"/?token={token}", {"Host": demo.host})
        assert got == status
    got, head, _ = demo.raw("GET", f"/?token={demo.server.token}", {"Host": demo.host})
    assert "location: /\r\n" in head + "\r\n" and "httponly; samesite=strict" in head
    assert demo.raw("GET", f"/?token={demo.server.token}", {"Host": "evil.example"})[0] == 403
    assert demo.raw("GET", f"/api/state?token={demo.server.token}", {"Host": demo.host})[0] == 403
    twice = {"Host": demo.host, "Cookie": demo.cookie}
    status, head, _ = demo.raw("GET", "/", twice)
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
    status, _, body = demo.raw("GET", path, {"Host": demo.host, "Cookie": demo.cookie})
    assert status == 404 and "root:" not in body and "[project]" not in body

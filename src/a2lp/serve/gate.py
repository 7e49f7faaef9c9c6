"""Who may enter: one gate in front of every route and the socket.

The server listens on loopback alone, yet any page in the same browser, and any program of another user on the same
machine, can reach it. So a request must name this server as its host, come from no other origin, and carry a cookie
that only the printed address gives; whatever changes something must carry a key that only the page knows, too.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

KEY_HEADER = "x-a2lp-key"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


class Gate:
    """An ASGI application that lets only its own page through to another.

    Parameters
    ----------
    app : ASGI application
    port : int
        The server's, which is part of its name.

    Attributes
    ----------
    token : str
        Opens the page, as a part of its address.
    key : str
        What the page sends with its commands.
    cookie : str
        The value of the cookie named ``a2lp-PORT``. All three are new at each start.
    """

    def __init__(self, app: App, port: int) -> None:
        self.app, self.port = app, port
        self.token, self.key, self.cookie = (secrets.token_urlsafe(32) for _ in range(3))
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self._origins = {f"http://{host}" for host in self._hosts}

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            field = name.decode("latin-1").lower()
            if field in headers and field in ("host", "origin", "cookie", KEY_HEADER):
                headers[field] = ""  # said twice: which one is meant cannot be known
            else:
                headers[field] = value.decode("latin-1")
        if (refusal := self._foreign(scope, headers)) is None and self._has_token(scope):
            await self._welcome(send)
            return
        refusal = refusal or self._stranger(scope, headers)
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)
            return
        await self.app(scope, receive, _guarded(send))

    def _foreign(self, scope: Scope, headers: dict[str, str]) -> str | None:
        """Why a request comes from elsewhere; None if it does not."""
        if headers.get("host", "").lower() not in self._hosts:
            return "this server answers to 127.0.0.1, localhost and [::1] with its port alone"
        origin = headers.get("origin")
        if (origin is not None and origin not in self._origins) or (origin is None and scope["type"] == "websocket"):
            return "the request comes from another origin"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "the request comes from another site"
        return None

    def _has_token(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != "/":
            return False
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _stranger(self, scope: Scope, headers: dict[str, str]) -> str | None:
        """Why the sender is not known; None if it is."""
        # cookies of other programs on this host come along, in any syntax
        cookies = dict(part.strip().partition("=")[::2] for part in headers.get("cookie", "").split(";"))
        if not hmac.compare_digest(cookies.get(f"a2lp-{self.port}", "").encode(), self.cookie.encode()):
            return "open the address that a2lp serve has printed, with its token"
        changes = scope["type"] == "http" and scope["method"] not in ("GET", "HEAD")
        if changes and not hmac.compare_digest(headers.get(KEY_HEADER, "").encode(), self.key.encode()):
            return "the request does not carry the page's key; reload the page"
        return None

    async def _welcome(self, send: Send) -> None:
        cookie = f"a2lp-{self.port}={self.cookie}; Path=/; HttpOnly; SameSite=Strict"
        headers = {"location": "/", "set-cookie": cookie, "cache-control": "no-store", **_HEADERS}
        await send({"type": "http.response.start", "status": 303, "headers": _raw(headers)})
        await send({"type": "http.response.body", "body": b""})


def _guarded(send: Send) -> Send:
    """Adds the headers that every answer has."""

    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message.get("headers", ())}
            more = _HEADERS | ({} if b"cache-control" in given else {"cache-control": "no-store"})
            message["headers"] = [*message.get("headers", ()), *_raw(more)]
        await send(message)

    return guarded


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()  # the handshake; a refusal before it is accepted is answered with status 403
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    body = json.dumps({"message": f"{why}."}).encode()
    headers = {"content-type": "application/json", "cache-control": "no-store", **_HEADERS}
    await send({"type": "http.response.start", "status": 403, "headers": _raw(headers)})
    await send({"type": "http.response.body", "body": body})


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]

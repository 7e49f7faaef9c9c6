"""Routes of the page. Everything here is behind the gate."""

from __future__ import annotations

import contextlib
import gzip
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from a2lp.errors import A2LPError, InputError
from a2lp.files import parse_json
from a2lp.serve.bodies import message, read_body
from a2lp.serve.commands import Conflict, read_rows
from a2lp.serve.exports import FORMATS, own_labels
from a2lp.serve.service import Service
from a2lp.serve.tabs import Page
from a2lp.serve.thumbnails import LARGEST, SIZES, NoPicture, Studio

_MOST_POINTS = 300
_MOST_FOUND = 5000
_PRIVATE = {"cache-control": "private, max-age=3600"}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
Handler = Callable[[Request], Awaitable[Response]]


def make_app(service: Service, studio: Studio | None, key: Callable[[], str]) -> Starlette:
    """The application behind the gate.

    Parameters
    ----------
    service : Service
    studio : Studio or None
        Makes the pictures; None where points have none.
    key : callable
        Returns the key that the page sends with its commands.
    """
    site = _Site(service, studio, key)
    routes = [
        Route("/", site.index),
        Route("/api/state", site.state),
        Route("/api/rows", site.rows),
        Route("/api/map", site.map),
        Route("/api/points", site.points),
        Route("/api/search", site.search),
        Route("/api/commands", site.commands, methods=["POST"]),
        Route("/api/export", site.export),
        Route("/api/export", site.sort, methods=["POST"]),
        Route("/api/settings", site.settings),
        Route("/api/settings", site.save_settings, methods=["POST"]),
        Route("/thumb/{row:int}/{size:int}", site.thumb),
        Route("/image/{row:int}", site.image),
        WebSocketRoute("/ws", site.socket),
        Route("/{name}", site.file),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        yield
        if studio is not None:
            studio.close()
        await service.stop()

    handlers: dict[Any, Any] = {A2LPError: _explain, NoPicture: _explain, Conflict: _explain, InputError: _explain}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


class _Site:
    def __init__(self, service: Service, studio: Studio | None, key: Callable[[], str]) -> None:
        self.service, self.studio, self.key = service, studio, key
        # read once: an upgrade of the package must not mix two versions of the page
        self.files = {
            path.name: path.read_bytes() for path in (files("a2lp.serve") / "web").iterdir() if path.is_file()
        }

        self.packed = {name: gzip.compress(data) for name, data in self.files.items()}

    async def index(self, request: Request) -> Response:
        page = self.files["index.html"].replace(b"{{key}}", self.key().encode())
        return _page_file(request, page, gzip.compress(page), ".html", "no-store")

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.files or name == "index.html" or Path(name).suffix not in _TYPES:
            return message(404, f"there is nothing called {name[:80]!r} here.")
        return _page_file(request, self.files[name], self.packed[name], Path(name).suffix, "no-cache")

    async def state(self, request: Request) -> Response:
        return JSONResponse(self.service.state())

    async def rows(self, request: Request) -> Response:
        return Response(self.service.ready().rows(), media_type="application/octet-stream")

    async def map(self, request: Request) -> Response:
        places = self.service.map()
        if places is None:
            return message(404, "the map is not computed yet. The socket tells when it is.")
        data = (
            struct.pack("<I", len(places)) + places[:, 0].astype("<u2").tobytes() + places[:, 1].astype("<u2").tobytes()
        )
        return Response(data, media_type="application/octet-stream")

    async def points(self, request: Request) -> Response:
        board = self.service.ready()
        texts = request.query_params.get("rows", "").split(",")
        rows = [int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1 for text in texts]
        return JSONResponse([board.point(row) for row in read_rows(rows, len(board), _MOST_POINTS)])

    async def search(self, request: Request) -> Response:
        text = request.query_params.get("q", "").casefold()
        keys = self.service.ready().keys
        found = [row for row, key in enumerate(keys) if text in key.casefold()] if text else []
        return JSONResponse({"rows": found[:_MOST_FOUND], "total": len(found)})

    async def commands(self, request: Request) -> Response:
        return JSONResponse(await self.service.command(await read_body(request)))

    async def settings(self, request: Request) -> Response:
        return JSONResponse(self.service.project.settings)

    async def save_settings(self, request: Request) -> Response:
        await anyio.to_thread.run_sync(self.service.project.save_settings, await read_body(request))
        return JSONResponse(self.service.project.settings)

    async def export(self, request: Request) -> Response:
        kind = request.query_params.get("format", "csv")
        name = Path(self.service.source).stem or "labels"
        if kind == "labels":
            data = own_labels(self.service.ready(), self.service.key)
            return _attachment(data, f"{name}-own-labels.csv", FORMATS["csv"][1])
        if kind not in FORMATS:
            return message(400, f"format={kind[:40]!r} must be one of {', '.join([*FORMATS, 'labels'])}.")
        suffix, media = FORMATS[kind]
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"labels{suffix}"
            await self.service.export(path)
            data = await anyio.to_thread.run_sync(path.read_bytes)
        return _attachment(data, f"{name}-labels{suffix}", media)

    async def sort(self, request: Request) -> Response:
        """Put links to the images into a folder for each class, in the project."""
        folder = self.service.project.folder / "sorted"
        await self.service.export(folder)
        return JSONResponse({"folder": str(folder)})

    async def thumb(self, request: Request) -> Response:
        size = request.path_params["size"]
        if size not in SIZES:
            return message(404, f"size {size} must be one of {', '.join(map(str, SIZES))}.")
        return await self._picture(request, size)

    async def image(self, request: Request) -> Response:
        return await self._picture(request, LARGEST)

    async def _picture(self, request: Request, side: int) -> Response:
        row, keys = request.path_params["row"], self.service.ready().keys
        if self.studio is None or not 0 <= row < len(keys):
            return message(404, f"row {row} has no picture.")
        made = await self.studio.picture(row, keys[row], side)
        return Response(made.data, media_type=made.type, headers=_PRIVATE)

    async def socket(self, socket: WebSocket) -> None:
        await socket.accept()
        page = Page()
        self.service.join(page)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._send, socket, page, group.cancel_scope)
                while True:
                    self._hear(await socket.receive_text())
        except* (WebSocketDisconnect, RuntimeError, KeyError):  # KeyError: a binary message
            pass
        finally:
            self.service.pages.discard(page)

    async def _send(self, socket: WebSocket, page: Page, scope: anyio.CancelScope) -> None:
        try:
            while True:
                message = await page.next()
                await (socket.send_text(message) if isinstance(message, str) else socket.send_bytes(message))
                if page.missed:
                    page.missed = False
                    self.service.join(page)
        except (WebSocketDisconnect, RuntimeError, OSError):
            scope.cancel()

    def _hear(self, text: str) -> None:
        """What a page says: which rows are in view."""
        try:
            message = parse_json(text, "the message")
        except InputError:
            return
        if isinstance(message, dict) and message.get("type") == "view" and self.studio is not None:
            rows = message.get("rows")
            self.studio.look_at([row for row in rows if type(row) is int] if isinstance(rows, list) else [])


def _page_file(request: Request, data: bytes, packed: bytes, suffix: str, caching: str) -> Response:
    """A file of the page, compressed where the browser takes that."""
    headers = {"cache-control": caching, "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, media_type=_TYPES[suffix], headers=headers | {"content-encoding": "gzip"})
    return Response(data, media_type=_TYPES[suffix], headers=headers)


async def _explain(request: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, NoPicture) else 409 if isinstance(error, Conflict) else 400
    return message(status, str(error))


def _attachment(data: bytes, name: str, media: str) -> Response:
    plain = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "-_.") else "_" for sign in name)
    return Response(data, media_type=media, headers={"content-disposition": f'attachment; filename="{plain}"'})

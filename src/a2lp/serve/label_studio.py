"""A machine-learning backend of Label Studio: its protocol, spoken without its SDK.

Label Studio asks for predictions of tasks (``predict``), and tells about annotations (``webhook``). It does not ask
again about a task that has a prediction of the current model version, so the version changes with every label. Its
webhooks carry no authentication: a secret is part of the backend's address, and Label Studio repeats it in every call.
Deleted annotations are named by their number alone; the log keeps that number in the id of the line.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from a2lp.errors import A2LPError, InputError
from a2lp.files import writing
from a2lp.serve.board import Board
from a2lp.serve.bodies import message, read_body
from a2lp.serve.gate import App, Receive, Scope, Send
from a2lp.serve.label_studio_tasks import Finder, Interface, chosen, dicts, read_interface
from a2lp.serve.service import Service

_WAIT = 60.0  # seconds that a prediction waits for the answer to the last label; Label Studio waits 100
_log = logging.getLogger("a2lp.serve")


class Backend:
    """The gate of the backend: nothing is answered without the secret, and no browser is.

    Attributes
    ----------
    secret : str
        Part of the address. It is kept in the project, so that the address stays the same.
    """

    def __init__(self, app: App, port: int, secret: str) -> None:
        self.app, self.secret = app, secret
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request of Label Studio through."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        start, _, rest = scope["path"].removeprefix("/k/").partition("/")
        known = hmac.compare_digest(start.encode(), self.secret.encode()) and scope["path"].startswith("/k/")
        browser = "origin" in headers or "sec-fetch-site" in headers
        if scope["type"] != "http" or not known or browser or headers.get("host", "").lower() not in self._hosts:
            if scope["type"] == "http":
                await message(403, "this address is for Label Studio alone.")(scope, receive, send)
            return
        await self.app({**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}, receive, send)


def make_backend(service: Service, port: int) -> Backend:
    """The backend, as an ASGI application."""
    site = _Site(service)
    routes = [
        Route("/", site.health),
        Route("/health", site.health),
        Route("/setup", site.setup, methods=["POST"]),
        Route("/predict", site.predict, methods=["POST"]),
        Route("/webhook", site.webhook, methods=["POST"]),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        learning = asyncio.create_task(site.learn())
        yield
        learning.cancel()
        await service.stop()

    handlers: Any = {InputError: _explain}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    return Backend(app, port, _secret(service.project.folder / "label_studio_secret"))


class _Site:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.interface = Interface()
        self._news: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._told = self._done = 0  # webhooks that were taken, each of which makes a new version, and worked off

    def version(self) -> str:
        """The model version: new with every label, and with every webhook."""
        board = self.service.board
        return f"a2lp-{board.seq if board is not None else 0}-{self._told}"

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "UP", "model_class": "a2lp"})

    async def setup(self, request: Request) -> Response:
        body = await read_body(request)  # its access_token is neither used nor kept
        self.interface = read_interface(body.get("schema")) or self.interface
        return JSONResponse({"model_version": self.version()})

    async def predict(self, request: Request) -> Response:
        body = await read_body(request)
        interface = read_interface(body.get("label_config")) or self.interface
        tasks = body.get("tasks")
        if not isinstance(tasks, list):
            raise InputError("tasks must be a list of Label Studio's tasks.")
        board = await self._settled()
        version = self.version()
        find = Finder(board.keys)
        return JSONResponse({"results": [prediction(board, find(task), interface, version) for task in tasks]})

    async def webhook(self, request: Request) -> Response:
        self._news.put_nowait(await read_body(request))
        self._told += 1
        return JSONResponse({"status": "taken"}, status_code=201)

    async def learn(self) -> None:
        """Take in what webhooks have told, one after the other."""
        while True:
            news = await self._news.get()
            try:
                for command in commands_of(news, await self._ready()):
                    await self.service.command(command)
            except A2LPError as error:
                _log.warning("a webhook of Label Studio was not used: %s", error)
            except Exception:  # a bug must not end the learning from what comes next
                _log.exception("a webhook of Label Studio failed")
            finally:
                self._done += 1

    async def _ready(self) -> Board:
        """The board, as soon as points and graph are there."""
        while self.service.board is None:
            if self.service.loading["phase"] == "failed":
                self.service.ready()
            await asyncio.sleep(0.05)
        return self.service.board

    async def _settled(self) -> Board:
        """The board, with the answer to the last label if that comes soon enough."""
        board = await self._ready()
        end = asyncio.get_running_loop().time() + _WAIT
        while (board.settling or self._done < self._told) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)
        return board


def commands_of(news: Mapping[str, Any], board: Board) -> Iterable[dict[str, Any]]:
    """The page's commands for what a webhook tells."""
    action = news.get("action")
    if action in ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"):
        yield from _label(news.get("annotation"), news.get("task"), board)
    elif action == "ANNOTATIONS_DELETED":
        for annotation in dicts(news.get("annotations")):
            row = _row_of(annotation.get("id"), board)
            if row is not None and row in board.labels.marks:
                yield {"id": f"ls-{secrets.token_hex(8)}", "op": "clear", "rows": [row]}


def _label(annotation: Any, task: Any, board: Board) -> Iterable[dict[str, Any]]:
    if not isinstance(annotation, dict) or not isinstance(task, dict) or annotation.get("was_cancelled"):
        return
    row, number, name = Finder(board.keys)(task), annotation.get("id"), chosen(annotation.get("result"))
    if row is None or not isinstance(number, int):
        return
    # the same news again must not label again, and an update must
    stamp = hashlib.sha256(f"{annotation.get('updated_at')} {name}".encode()).hexdigest()[:12]
    command = {"id": f"ls-{number}-{stamp}", "rows": [row]}
    yield command | ({"op": "clear"} if name is None else {"op": "label", "label": name, "how": "own"})


def _row_of(annotation: Any, board: Board) -> int | None:
    """The point of an annotation that a line of the log is about."""
    if not isinstance(annotation, int):
        return None
    for line in reversed(board.project.log.lines):
        if line["id"].startswith(f"ls-{annotation}-") and line.get("keys"):
            return board.labels.row_of.get(line["keys"][0])
    return None


def prediction(board: Board, row: int | None, interface: Interface, version: str) -> dict[str, Any]:
    """Label Studio's form of a prediction; without a result where there is none."""
    found: dict[str, Any] = {"model_version": version, "score": 0.0, "result": []}
    if row is None:
        return found
    classes = board.labels.classes
    if row in board.anchors:
        chances = [(board.anchors[row], 1.0)]
    else:
        chances = [(classes[code].root, p) for code, p in board.answers.top(row, len(classes))]
    for code, p in chances:
        name = classes[code].name
        if name in interface.choices or not interface.choices:
            value = {"choices": [name]}
            about = {"from_name": interface.from_name, "to_name": interface.to_name, "type": "choices"}
            return found | {"score": round(p, 4), "result": [about | {"value": value}]}
    return found


def _secret(path: Path) -> str:
    """The secret in a file that only its owner can read; a new one if there is none."""
    with writing(path):
        if path.exists() and re.fullmatch(r"[\w-]{20,}", found := path.read_text(encoding="utf-8").strip()):
            return found
        made = secrets.token_urlsafe(24)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(made + "\n")
    return made


async def _explain(request: Request, error: Exception) -> Response:
    return message(400, str(error))

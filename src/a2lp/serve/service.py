"""The server's one thread of control: commands in, answers of the solver in, news to all pages out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from a2lp.errors import A2LPError, InputError
from a2lp.files import reason
from a2lp.serve.project import Project
from a2lp.serve.rhythm import Rhythm
from a2lp.serve.tabs import Page

if TYPE_CHECKING:
    import numpy as np

    from a2lp.serve.board import Board
    from a2lp.serve.prepared import Spec

_STATE_EVERY = 0.1  # seconds between two messages with the whole state
_IRRELEVANT = ("pin", "audit_start", "class")  # commands that change no answer


class Service:
    """A project that is being labelled.

    Parameters
    ----------
    project : Project
    spec : Spec
        What is labelled.
    source : str
        Its name on the page.
    images : bool
        Whether points have pictures.
    key : str
        What tables call the points' keys.
    imported : sequence of (key, label, how)
        Labels from the user's tables, for points that the log does not know.
    names : sequence of str
        Classes that exist from the start.
    """

    def __init__(
        self,
        project: Project,
        spec: Spec,
        *,
        source: str,
        images: bool,
        key: str,
        imported: Sequence[tuple[str, str, str]] = (),
        names: Sequence[str] = (),
    ) -> None:
        self.project, self.spec, self.source, self.images, self.key = project, spec, source, images, key
        self.board: Board | None = None
        self.loading: dict[str, Any] = {"phase": "loading", "doing": "starting", "done": 0, "total": 0}
        self.pages: set[Page] = set()
        self.skipped: dict[str, str] = {}
        self._imported, self._names = imported, names
        self._writer = ThreadPoolExecutor(1)  # lines are written one after the other, beside the event loop
        self._turn = asyncio.Lock()
        self._tickets = itertools.count()
        self._exports: dict[int, asyncio.Future[str | None]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._rhythm = Rhythm()
        self._context = get_context("spawn")
        self._wanted = self._context.Value("q", 0, lock=False)
        self._solver: Any = None
        self._mapper: Any = None

    # ---- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the solver's process."""
        from a2lp.serve import solver

        self._loop = asyncio.get_running_loop()
        self._conn, theirs = self._context.Pipe()
        self._solver = self._context.Process(target=solver.main, args=(theirs, self._wanted, self.spec), daemon=True)
        await self._loop.run_in_executor(None, self._solver.start)
        theirs.close()
        threading.Thread(target=self._listen, daemon=True).start()
        self._loop.create_task(self._begin())  # at once, where the cache has everything

    async def stop(self) -> None:
        """End the solver; everything that was acknowledged is on the disk already."""
        for page in self.pages:
            page.send(json.dumps({"type": "bye", "message": "The server was stopped. Your labels are saved."}))
        for timer in self._timers.values():
            timer.cancel()
        for process in (self._solver, self._mapper):
            if process is not None and process.pid is not None:
                process.terminate()
                await asyncio.to_thread(process.join, 5)
        self._writer.shutdown()
        self.project.close()

    def _listen(self) -> None:
        """A thread: pass on the solver's messages."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            try:
                while True:
                    message = self._conn.recv()
                    self._loop.call_soon_threadsafe(self._take, message)
            except (EOFError, OSError):
                self._loop.call_soon_threadsafe(self._take, {"type": "gone"})

    # ---- what comes in ----------------------------------------------------------------------------------------------

    async def command(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a page asks for; the answer to it, once the log has it on disk."""
        board = self.ready()
        if command.get("op") == "noop":
            return {"seq": board.seq, "id": str(command.get("id"))}
        async with self._turn:
            known = self.project.log.known(str(command.get("id")))
            line = known or await self._write(board.line_of(command))
            answer = {"seq": line["seq"], "id": line["id"]}
            if line["op"] == "undo":
                answer["undone"] = line["undoes"]
            if line["op"] == "audit_start":
                answer["rows"] = [board.labels.row_of[key] for key in line["keys"] if key in board.labels.row_of]
            if known is None:
                self._apply(board, line)
        return answer

    def ready(self) -> Board:
        """The board; InputError while points are still being prepared."""
        if self.board is None:
            raise InputError(self.loading.get("message") or "the points are still being prepared. Wait a little.")
        return self.board

    async def export(self, path: Path) -> None:
        """Write a table of all labels, by the solver: with the answer to the labels as they are now."""
        from a2lp.serve.exports import request

        ticket = next(self._tickets)
        waiting: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._exports[ticket] = waiting
        self._conn.send(request(self.ready(), ticket, path, self.key))
        if (message := await waiting) is not None:
            raise InputError(message)

    def state(self) -> dict[str, Any]:
        """What the page is told as a whole."""
        if self.board is None:
            return {**self.loading, "source": self.source, "images": self.images}
        from a2lp.serve.summary import state

        map_ready = (self.project.cache / "map.npy").exists()
        about = {"phase": "ready", "source": self.source, "images": self.images, "map": map_ready}
        about["files"] = self.spec.paths is not None
        return about | {"skipped": len(self.skipped)} | state(self.board)

    def join(self, page: Page) -> None:
        """A tab was opened: it gets everything."""
        self.pages.add(page)
        page.send(json.dumps({"type": "state", **self.state()}))
        if self.board is not None:
            page.send(self.board.whole())

    def map(self) -> np.ndarray[Any, Any] | None:
        """Coordinates of the map (n, 2), from 0 to 65535; None until they are computed."""
        import numpy as np

        path = self.project.cache / "map.npy"
        return np.load(path) if path.exists() else None

    # ---- what goes out ----------------------------------------------------------------------------------------------

    async def _write(self, line: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._writer, partial(self.project.log.append, line))

    def _apply(self, board: Board, line: dict[str, Any]) -> None:
        rows = board.apply(line)
        about = {name: line[name] for name in ("seq", "op", "label") if name in line}
        row_of = board.labels.row_of
        named = [row_of[key] for key in line.get("keys", ()) if key in row_of]
        self._tell(json.dumps({"type": "event", **about, "rows": named}))
        self._tell(board.update(rows))
        if line["op"] not in _IRRELEVANT:
            self._wanted.value = board.seq  # ends what the solver does for older labels
            self._later("job", self._rhythm.labelled(self._loop.time()), self._ask)
        self._later("state", _STATE_EVERY, self._tell_state, restart=False)

    def _ask(self) -> None:
        if self.board is not None:
            self._rhythm.asked(self._loop.time())
            job = self.board.job()
            self._wanted.value = job.seq
            self._conn.send(job)

    def _take(self, message: dict[str, Any]) -> None:
        """A message of the solver."""
        kind = message["type"]
        if kind == "loading":
            self.loading = {"phase": "loading", **{name: message[name] for name in ("doing", "done", "total")}}
            self._tell(json.dumps({**self.loading, "type": "loading"}))
        elif kind == "ready":
            self._loop.create_task(self._begin())
        elif kind in ("failed", "gone"):
            self._fail(message.get("message", "the process that computes has ended. Start the server again."))
        elif kind == "exported":
            self._exports.pop(message["ticket"]).set_result(message.get("message"))
        elif self.board is not None:
            rows = self.board.take(message)
            if len(rows):
                self._tell(self.board.update(rows))
            # whoever waits for an answer learns at once that it is there
            self._later("state", 0 if kind == "answer" else _STATE_EVERY, self._tell_state, restart=kind == "answer")

    def _fail(self, message: str) -> None:
        if self.loading["phase"] == "failed":
            return  # the first reason is the right one
        self.loading, self.board = {"phase": "failed", "message": message}, None
        for waiting in self._exports.values():
            waiting.set_result(message)
        self._exports.clear()
        self._tell_state()

    async def _begin(self) -> None:
        """If points and graph are there: read the log, and let the page in."""
        try:
            async with self._turn:
                if self.board is not None or (board := await asyncio.to_thread(self._open_board)) is None:
                    return
                await self._import(board)
                propagation = board.propagation()
                self.board = board
        except A2LPError as error:
            self._fail(str(error))
            return
        except Exception as error:
            self._fail(f"the project cannot be opened ({reason(error)}).")
            raise
        self._ask()
        for page in self.pages:
            page.send(json.dumps({"type": "state", **self.state()}))
            page.send(board.whole())
        board.answers.start(await asyncio.to_thread(propagation))
        if not (self.project.cache / "map.npy").exists():
            await self._draw_map()

    def _open_board(self) -> Board | None:
        from a2lp.serve.board import Board
        from a2lp.serve.prepared import load

        prepared = load(self.spec)
        if prepared is None:
            return None
        self.skipped = prepared.skipped
        return Board(self.project, prepared.keys, prepared.graph)

    async def _import(self, board: Board) -> None:
        """Write the labels of tables, and classes by name, into the log, unless it knows them."""
        from a2lp.serve.imports import lines

        for line in lines(board.labels, self._imported, self._names):
            board.apply(await self._write(line))

    async def _draw_map(self) -> None:
        from a2lp.serve import solver

        self._mapper = self._context.Process(target=solver.draw_map, args=(self.spec,), daemon=True)
        await asyncio.to_thread(self._mapper.start)
        await asyncio.to_thread(self._mapper.join)
        if self._mapper.exitcode == 0:
            self._tell(json.dumps({"type": "map"}))
            self._tell_state()

    def _tell_state(self) -> None:
        self._tell(json.dumps({"type": "state", **self.state()}))

    def _tell(self, message: str | bytes) -> None:
        for page in self.pages:
            page.send(message)

    def _later(self, name: str, seconds: float, do: Any, *, restart: bool = True) -> None:
        """Do something after a while, once; a repeated call starts the wait anew, or does nothing."""
        timer = self._timers.get(name)
        if timer is not None and not timer.cancelled() and timer.when() > self._loop.time():
            if not restart:
                return
            timer.cancel()
        self._timers[name] = self._loop.call_later(seconds, do)

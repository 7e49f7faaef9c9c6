"""The process that computes: points, graph, predictions, estimates and suggestions; the server never waits for it.

It gets the labels as they are now, with the number of the log's last line. A full answer comes first. When no newer
labels arrive for a while, it computes the answer from nothing, as ``a2lp classify`` would, chooses suggestions and
estimates the accuracy. Newer labels end all of this, so that no answer waits for it. They also end an answer, unless
the last one is too old: someone who labels without a pause sees answers, too.

Where an answer from nothing takes longer than the user's pauses, it is never finished. So once it was ended, the next
pause begins with suggestions and an estimate of the answer that is there.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.errors import A2LPError, InputError
from a2lp.files import reason, replacing
from a2lp.serve.jobs import Export, Job
from a2lp.serve.prepared import Prepared, Spec, prepare

Message = dict[str, Any]
_IDLE = 0.25, 1.0  # seconds without labels before suggestions and estimates are computed: what they took, within these
_PATIENCE = 10.0  # seconds after which an answer is needed even if labels have changed since
_SUGGESTED = 20
_NICE = 5


class Stopped(Exception):
    """The labels have changed, so what was being computed is of no use."""


class Solver:
    """A pool, and what has been sent about it."""

    def __init__(self, prepared: Prepared, spec: Spec, wanted: Any, send: Callable[[Message], None]) -> None:
        from a2lp.pool.session import Pool

        self.keys = prepared.keys
        path_of = dict(zip(spec.keys, spec.paths or (), strict=False))
        self.paths = None if spec.paths is None else [Path(path_of[key]) for key in self.keys]
        self.pool = Pool(prepared.graph)
        self.pool.points = prepared.points
        self.pool.check = self._check
        self.pool.patient = True  # weights are chosen when idle
        self.wanted, self.send = wanted, send
        self.now: Job | None = None
        self._labels: dict[int, tuple[str, str]] = {}
        self.suggested: Any = None
        self._urgent_from = math.inf  # when what is being computed may no longer be ended
        self._answered = -math.inf
        self._refit_ended = False

    def answer(self, job: Job) -> None:
        """A full answer for the labels of a job."""
        self._take(job)
        self._urgent_from = self._answered + _PATIENCE
        if self._choice():
            with contextlib.suppress(Stopped):
                self._send_answer()
                self._answered = time.monotonic()

    def idle(self) -> bool:
        """Suggestions and estimates for the last job; whether they were finished."""
        self._urgent_from = math.inf
        with contextlib.suppress(Stopped):
            self._check()
            if self.now is not None:
                self._send_estimates()
            return True
        return False

    def export(self, request: Export) -> None:
        """Write a table as ``a2lp classify`` does, with the page's columns beside."""
        from a2lp.labelling.classify import label
        from a2lp.labelling.outputs import TABLES, write_output

        self._take(request.job)
        self._urgent_from = -math.inf
        self.pool.refit()
        result = label(self.pool, None, keys=self.keys, key=request.key)
        for row, text in enumerate(request.labels):
            if request.keep[row]:
                result.table["label"][row] = text
        for name, values in request.states.items():
            result = result.with_column(name, values)
        link = Path(request.path).suffix.lower() not in TABLES  # a folder for each class
        write_output(result, request.path, force=True, link=link, paths=self.paths)
        self.send({"type": "exported", "ticket": request.ticket})

    def _take(self, job: Job) -> None:
        """Set the pool's labels to those of a job."""
        wanted = {row: (job.names[code], how) for row, code, how in zip(job.rows, job.codes, job.how, strict=True)}
        before = self._labels
        gone = [row for row in before if row not in wanted]
        self.now = job
        if gone:
            self.pool.label(gone, None)
        changed: dict[str, list[int]] = {}
        for row, (name, how) in wanted.items():
            if before.get(row) != (name, how):
                changed.setdefault(how, []).append(row)
        for how, rows in changed.items():
            self.pool.label(rows, [wanted[row][0] for row in rows], how)
        self._labels = wanted

    def _choice(self) -> bool:
        """Whether there are two classes to choose from."""
        return self.now is not None and len(set(self.now.codes)) >= 2

    def _check(self) -> None:
        """End the computation if newer labels make it useless."""
        stale = self.now is not None and self.wanted.value != self.now.seq
        if stale and time.monotonic() < self._urgent_from:
            raise Stopped

    def _send_answer(self) -> None:
        job, answer = self.now, self.pool.answer
        assert job is not None
        weights = answer.task.weights
        self.send(
            {
                "type": "answer",
                "seq": job.seq,
                "columns": self._columns(answer.classes),
                "best": np.searchsorted(answer.classes, answer.labels).astype(np.uint16),
                "probabilities": answer.probabilities.astype(np.float32, copy=False),
                "reached": answer.reached,
                "nearest": answer.nearest.astype(np.int32),
                "weight": 1.0 if weights is None else float(weights[0]),
                "reason": answer.reason,
            }
        )

    def _columns(self, classes: Any) -> list[int]:
        assert self.now is not None
        code_of = {name: code for code, name in self.now.names.items()}
        return [code_of[name] for name in classes.tolist()]

    def _send_estimates(self) -> None:
        if not self._choice():
            self._send_suggestions()
            return
        early = self._refit_ended
        if early:
            self._send_worth()
        before, self._refit_ended = self.pool.answer, True
        self.pool.refit()
        self._refit_ended, changed = False, self.pool.answer is not before
        if changed:
            self._send_answer()
        if changed or not early:
            self._send_worth()

    def _send_worth(self) -> None:
        self._send_suggestions()
        self._check()
        self._send_assessment()

    def _send_suggestions(self) -> None:
        job = self.now
        assert job is not None
        self._check()
        passed = set(job.passed)
        try:
            found = self.pool.suggest(_SUGGESTED + min(len(passed), 200))
        except InputError:  # all points are labelled
            self.send({"type": "suggested", "seq": job.seq, "rows": []})
            self.suggested = None
            return
        rows = [
            {"row": row, "why": why, "how": how}
            for row, why, how in zip(found.rows.tolist(), found.why, found.how, strict=True)
            if row not in passed
        ]
        self.send({"type": "suggested", "seq": job.seq, "rows": rows[:_SUGGESTED]})
        self.suggested = found

    def _send_assessment(self) -> None:
        job = self.now
        assert job is not None
        worth = self.pool.assessment
        columns = self._columns(self.pool.answer.classes)
        others = worth.held_out_probabilities.copy()
        place = {row: i for i, row in enumerate(worth.held_out_rows.tolist())}
        doubted = []
        for row, probability in zip(worth.mistakes.tolist(), worth.suspicion.tolist(), strict=True):
            chances = others[place[row]]
            chances[self.pool.answer.task.codes[row]] = -1
            doubted.append((row, columns[int(chances.argmax())], probability))
        self._check()
        self.send(
            {
                "type": "assessed",
                "seq": job.seq,
                "labels": len(job.rows),
                "accuracy": (worth.accuracy, worth.low, worth.high),
                "probabilities": worth.probabilities.astype(np.float32, copy=False),
                "doubted": doubted,
                "unseen": worth.unseen,
                "novelty": self.pool.novelty.astype(np.float32),
                "expected": None if self.suggested is None else self.suggested.expected,
            }
        )


def main(conn: Connection, wanted: Any, spec: Spec) -> None:
    """The process: prepare the points, then answer until the server is gone."""
    warnings.simplefilter("ignore")
    _end_with_server()
    _give_way(_NICE)
    try:
        _serve(conn, wanted, spec)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
    except A2LPError as error:
        conn.send({"type": "failed", "message": str(error)})
    except Exception as error:
        conn.send({"type": "failed", "message": f"the computation failed ({reason(error)}). Start the server again."})
        raise


def _serve(conn: Connection, wanted: Any, spec: Spec) -> None:
    told = 0.0

    def report(doing: str, done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told > 0.1 or done in (0, total):
            told = time.monotonic()
            conn.send({"type": "loading", "doing": doing, "done": done, "total": total})

    prepared = prepare(spec, report)
    conn.send({"type": "ready"})
    solver = Solver(prepared, spec, wanted, conn.send)
    rest, rested = _IDLE[1], True
    while True:
        jobs: list[Any] = []
        if conn.poll(None if rested else rest):
            jobs.append(conn.recv())
            while conn.poll():
                jobs.append(conn.recv())
        for export in (job for job in jobs if isinstance(job, Export)):
            try:
                solver.export(export)
            except A2LPError as error:
                conn.send({"type": "exported", "ticket": export.ticket, "message": str(error)})
        if newest := [job for job in jobs if isinstance(job, Job)]:
            solver.answer(newest[-1])
            rested = False
        elif not jobs:
            began = time.monotonic()
            if solver.idle():
                rest = min(max(_IDLE[0], time.monotonic() - began), _IDLE[1])
            rested = True


def _end_with_server() -> None:
    """End this process when the server has ended, even if that was killed."""

    def wait() -> None:
        server = parent_process()
        assert server is not None
        server.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _give_way(niceness: int) -> None:
    """Let the server and the browser come first where the cores are busy."""
    if hasattr(os, "nice"):
        os.nice(niceness)


def draw_map(spec: Spec) -> None:
    """A process of its own: coordinates of all points, written to the cache."""
    from a2lp.pool.layout import layout

    _end_with_server()
    _give_way(2 * _NICE)
    path = spec.folder / "map.npy"
    prepared = prepare(spec, lambda *_: None)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, np.round(layout(prepared.graph) * 65535).astype(np.uint16))

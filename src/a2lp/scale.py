"""Work on a Dask cluster; the only file that knows Dask's ``distributed``.

A task carries paths and numbers, and its result is a file: it is written aside, renamed, and never written again. Dask
runs a task at least once; looking for the file first makes that exactly once. So workers and the scheduler may die at
any time, and the same command continues with what is missing.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from a2lp import cores
from a2lp._version import __version__
from a2lp.checks import shown
from a2lp.errors import ClusterError, InputError, MissingExtraError
from a2lp.files import exists, read_json

Progress = Callable[[int, int, int], None]
"""Called with the amount done, the total, and the number of workers."""

MOST_BYTES = 1024  # of a task's arguments; what is larger belongs into a file
CONNECT_SECONDS = 10.0
VISIBLE_SECONDS = 90.0  # for a file of another machine: network file systems remember for a while that it was absent
ALONE_SECONDS = 40.0  # without any worker, after there were some: then the run ends
MISSING_SECONDS = 20.0  # after which a worker that did not come back is reported
_WATCH_SECONDS = 1.0
_SAME_FOLDERS = "Commands and workers need the same folders under the same names, as a network file system gives."
_GOES_ON = "What is finished is kept; the same command continues from there."

_log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """The end of a task."""

    name: Any
    answer: Any
    error: Exception | None


class Cluster:
    """A Dask cluster, started or joined when the first task is added; a context manager.

    Parameters
    ----------
    scheduler : str
        ``local:N`` for N processes on this machine, the address of a scheduler (``tcp://...``, ``tls://...``), or the
        file that ``dask scheduler --scheduler-file`` writes.
    progress : callable, optional
        See ``Progress``.

    Examples
    --------
    >>> from a2lp.scale import Cluster
    >>> with Cluster("local:2") as cluster:  # nothing starts before there is work
    ...     cluster.n_local
    2
    """

    def __init__(self, scheduler: str, progress: Progress | None = None) -> None:
        self.scheduler = scheduler
        self.progress = progress or (lambda done, total, workers: None)
        self._client: Any = None
        self._local: Any = None
        local = re.fullmatch(r"local:([0-9]{1,4})", scheduler)
        self.n_local = int(local[1]) if local else 0
        self._address = "" if local else _address(scheduler)
        if local and not self.n_local:
            raise InputError(f"scheduler {shown(scheduler)} asks for no workers; give 1 or more, as in local:2.")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *failure: object) -> None:
        for each in (self._client, self._local):
            if each is not None:
                with suppress(Exception):  # of a cluster that is gone
                    each.close(timeout=5)
        self._client = self._local = None

    def work(self, total: int, done: int = 0) -> Work:
        """Start a run of tasks, which bring what is ``done`` to the total."""
        return Work(self, self._connected(), total, done)

    def _connected(self) -> Any:
        if self._client is None:
            distributed = _distributed()
            address = self._address
            if self.n_local:
                self._local = address = distributed.LocalCluster(
                    n_workers=self.n_local,
                    threads_per_worker=1,  # tasks at a time; each has the cores below
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                    env={"A2LP_CORES": str(max(1, cores.count() // self.n_local))},
                    preload=__name__,
                )
            try:
                self._client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
            except (OSError, ValueError, TimeoutError) as error:
                raise ClusterError(
                    f"no scheduler answers at {self._address} ({type(error).__name__}). Start one with `dask "
                    "scheduler`, or check the address and the network."
                ) from error
        return self._client


class Work:
    """Tasks on a cluster: ``add`` them, then iterate over their outcomes; more may be added meanwhile.

    An exception of a task is its outcome. A cluster that is lost raises ``ClusterError``.
    """

    def __init__(self, cluster: Cluster, client: Any, total: int, done: int) -> None:
        self._cluster, self._client, self._total, self._done = cluster, client, total, done
        self._tasks: dict[Any, tuple[Any, int]] = {}  # the name and the size of each future's task
        self._completed = _distributed().as_completed(loop=client.loop, with_results=True, raise_errors=False)
        self._workers = _Workers(cluster)
        self._workers.watch(client)

    def add(self, name: Any, function: Callable[..., Any], *arguments: str | int, size: int = 1) -> None:
        """Add a task: a function of an installed module, and its arguments; ``size`` is its part of the total."""
        sent = len(pickle.dumps(arguments))
        if sent > MOST_BYTES:
            raise InputError(
                f"a task for the cluster has {sent} bytes of arguments, and at most {MOST_BYTES} are sent: workers "
                f"read the rest from files. Use a folder with a shorter path than {shown(str(arguments[0]))}."
            )
        key = f"a2lp-{secrets.token_hex(8)}"
        future = self._client.submit(_run, __version__, function, *arguments, key=key, pure=False)
        self._tasks[future] = (name, size)
        self._completed.add(future)

    def __enter__(self) -> Work:
        return self

    def __exit__(self, *failure: object) -> None:
        with suppress(Exception):  # of a cluster that is gone
            self._client.cancel(list(self._tasks), force=True)

    def __iter__(self) -> Iterator[Outcome]:
        while self._tasks:
            if self._workers.watch(self._client):
                self._report()
            ready = self._completed.next_batch(block=False)
            if not ready:
                time.sleep(0.02)
            for future, answer in ready:
                name, size = self._tasks.pop(future)
                outcome = self._outcome(name, future, answer)
                future.release()  # else the death of the worker that holds the answer would run the task again
                self._done += size
                self._report()
                yield outcome

    def _outcome(self, name: Any, future: Any, answer: Any) -> Outcome:
        if future.status == "finished":
            return Outcome(name, answer, None)
        if future.status != "error":  # "cancelled": so Dask ends its futures when the scheduler is gone
            raise _lost(self._cluster)
        error = answer[1]
        if isinstance(error, _distributed().KilledWorker):
            raise ClusterError(
                f"{1 + error.allowed_failures} workers died one after the other at the same task ({name}), most often "
                "because it needs more memory than a worker has. Use fewer workers on a machine, or give them more "
                f"memory. {_GOES_ON}"
            ) from error
        if isinstance(error, ClusterError):
            raise error
        return Outcome(name, None, error)

    @property
    def n_workers(self) -> int:
        """The number of workers that are there."""
        return len(self._workers.known)

    def _report(self) -> None:
        self._cluster.progress(self._done, self._total, self.n_workers)


class _Workers:
    """The workers of a cluster: how many there are, and how long some or all have been missing."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.known: set[str] = set()
        self._had_some = False
        self._looked, self._alone, self._missing, self._said = -math.inf, 0.0, 0.0, False
        self._silent = 0  # questions in a row that the scheduler did not answer in time

    def watch(self, client: Any) -> bool:
        """Look at them now and then; whether they changed. ClusterError if all are lost, or the scheduler is."""
        now = time.monotonic()
        if now - self._looked < _WATCH_SECONDS:
            return False
        passed, self._looked = min(now - self._looked, 5.0), now  # more means that this process was paused
        if client.status != "running":
            raise _lost(self.cluster)
        try:
            present = set(client.nthreads(callback_timeout=CONNECT_SECONDS))
        except Exception as error:  # of whatever layer noticed it first
            self._silent += 1
            if not isinstance(error, TimeoutError) or self._silent == 3:  # one may mean that this process was paused
                raise _lost(self.cluster) from error
            return False
        self._silent = 0
        lost, changed = self.known - present, self.known != present
        if lost:
            _log.info("%d of %d workers lost; what they were doing runs again.", len(lost), len(self.known))
        self.known, self._had_some = present, self._had_some or bool(present)
        self._check_missing(passed)
        return changed

    def _check_missing(self, passed: float) -> None:
        there, asked = len(self.known), self.cluster.n_local or 1
        self._alone = 0.0 if there else self._alone + passed
        self._missing = 0.0 if there >= asked else self._missing + passed
        if self._had_some and self._alone > ALONE_SECONDS:
            raise ClusterError(f"all workers were lost, and none came back in {ALONE_SECONDS:.0f} s. {_GOES_ON}")
        late = self._missing > MISSING_SECONDS
        if late and not self._said:
            if self._had_some:
                _log.info("%d of %d workers did not come back; the others go on.", asked - there, asked)
            else:
                _log.info("no worker has joined %s yet; waiting for one.", self.cluster.scheduler)
        self._said = late


def _address(scheduler: str) -> str:
    """The address of a scheduler: as it is given, or from its file."""
    if "://" in scheduler:
        return scheduler
    if not exists(scheduler):
        raise InputError(
            f"scheduler {shown(scheduler)} is neither local:N, such as local:2, nor an address, such as "
            "tcp://10.0.0.1:8786, nor the file of a scheduler. Start one with `dask scheduler --scheduler-file FILE`."
        )
    found = read_json(scheduler, "the file of a Dask scheduler (JSON)")
    if not isinstance(found, dict) or not isinstance(found.get("address"), str):
        raise InputError(
            f"{scheduler} has no `address`; expected the file that `dask scheduler --scheduler-file` wrote."
        )
    return str(found["address"])


def _lost(cluster: Cluster) -> ClusterError:
    return ClusterError(f"the scheduler of {cluster.scheduler} was lost. {_GOES_ON}")


def _distributed() -> Any:
    """The package, made quiet: what happens to a cluster is said here, in a sentence."""
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("--scheduler", "distributed", "scale") from error
    for name in ("distributed", "distributed.client", "tornado", "tornado.application", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return distributed


def wait_for(path: Path) -> None:
    """Wait until a file is seen that another machine has written."""
    deadline = time.monotonic() + VISIBLE_SECONDS
    while not exists(path):
        if time.monotonic() > deadline:
            raise ClusterError(f"{socket.gethostname()} does not see {path}. {_SAME_FOLDERS}")
        with suppress(OSError):
            list(path.parent.iterdir())  # makes a network file system look again
        time.sleep(0.2)


# ---- on a worker --------------------------------------------------------------------------------------------------

_ALONE = threading.Lock()


def dask_setup(worker: Any) -> None:
    """Leave Ctrl-C to the command, which ends its workers; Dask calls this when a worker of ``local:N`` starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(version: str, function: Callable[..., Any], *arguments: str | int) -> Any:
    """One task at a time in a process, on ``A2LP_CORES`` cores, or else on as many as the worker has threads."""
    if version != __version__:
        raise ClusterError(
            f"the worker on {socket.gethostname()} has a2lp {__version__}, and the command is of {version}. Install "
            "the same version everywhere."
        )
    from distributed import get_worker

    with _ALONE:
        if not os.environ.get("A2LP_CORES"):
            os.environ["A2LP_CORES"] = str(min(cores.count(), get_worker().state.nthreads))
        return function(*arguments)


def check_seen(path: Path) -> None:
    """Refuse, on a worker, a file that the command has written and this machine does not see."""
    if not exists(path):
        raise ClusterError(f"the worker on {socket.gethostname()} does not see {path}. {_SAME_FOLDERS}")

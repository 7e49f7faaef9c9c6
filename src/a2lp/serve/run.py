"""Start a server on a local address, and run it until it is stopped."""

from __future__ import annotations

import contextlib
import os
import socket
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from a2lp.errors import InputError, require_packages
from a2lp.serve.project import DEMO, Project, usual_folder

if TYPE_CHECKING:
    from a2lp.labelling.sources import Embedding, Points
    from a2lp.serve.service import Service
    from a2lp.serve.thumbnails import Studio

_NEEDED = ("starlette", "uvicorn", "wsproto")
Say = Callable[[str], None]


class _Opened(NamedTuple):
    service: Service
    studio: Studio | None
    listening: socket.socket
    port: int


def serve(
    source: str | None = None,
    labels: Sequence[str] = (),
    how: Embedding | None = None,
    *,
    names: Path | None = None,
    project: Path | None = None,
    port: int = 0,
    browser: bool = True,
    say: Say,
) -> None:
    """Serve the labelling page until the process is interrupted.

    Parameters
    ----------
    source : str, optional
        A folder of images or a feature file; None for a demo on scikit-learn's digits.
    labels : sequence of str
        Tables or folders of labels that exist already; they go into the log once.
    how : Embedding, optional
        For images.
    names : Path, optional
        A text file with the names of the classes, one per line.
    project : Path, optional
        The project's folder; beside the source by default.
    port : int
        0 for that of the last time, or any that is free.
    browser : bool
        Whether to open the page.
    say : callable
        Called with lines for the user.
    """
    require_packages("a2lp serve", "serve", *_NEEDED)
    from a2lp.serve.app import make_app
    from a2lp.serve.gate import Gate

    opened = _open(source, labels, how, names=names, project=project, port=port)
    gate: Gate
    app = make_app(opened.service, opened.studio, lambda: gate.key)
    gate = Gate(app, opened.port)
    say(f"Project: {opened.service.project.folder}")
    say(f"Open {gate.address}")
    if browser:
        webbrowser.open(gate.address)
    _run(gate, opened, say)


def serve_label_studio(
    source: str | None,
    labels: Sequence[str] = (),
    how: Embedding | None = None,
    *,
    project: Path | None = None,
    port: int = 9090,
    say: Say,
) -> None:
    """Serve Label Studio's machine-learning protocol until the process is interrupted; as ``serve``."""
    require_packages("a2lp label-studio", "serve", *_NEEDED)
    from a2lp.serve.label_studio import make_backend

    opened = _open(source, labels, how, project=project, port=port)
    backend = make_backend(opened.service, opened.port)
    say(f"Project: {opened.service.project.folder}")
    say(f"Add this machine-learning backend in Label Studio: http://127.0.0.1:{opened.port}/k/{backend.secret}")
    say("Start Label Studio with ML_BLOCK_LOCAL_IP=false and SSRF_PROTECTION_ENABLED=false, or it refuses it.")
    _run(backend, opened, say)


def _open(
    source: str | None,
    labels: Sequence[str],
    how: Embedding | None,
    *,
    names: Path | None = None,
    project: Path | None,
    port: int,
) -> _Opened:
    """Read what the user has given, lock the project and take the port; nothing is computed yet."""
    from a2lp.labelling.labels import read_task
    from a2lp.labelling.sources import Embedding, find_points
    from a2lp.serve.imports import read_names
    from a2lp.serve.prepared import Spec
    from a2lp.serve.service import Service

    where = source or DEMO
    folder = project or usual_folder(where)
    if Path(where).is_dir() and Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(where)):
        raise InputError(
            f"{folder} lies in the source {where}, whose images would then include thumbnails. Choose a folder outside "
            "of it with --project DIR."
        )
    task = read_task(list(labels), find_points(where), need_choice=False)
    points = task.points
    classes = read_names(names) if names is not None else []
    opened = Project(folder, Path(where).name)
    try:
        listening = _listen(port) if port else _listen_again(opened.settings.get("port"))
        port = listening.getsockname()[1]
        opened.save_settings({"port": port})
    except BaseException:
        opened.close()
        raise
    opened.lock.tell(f"http://127.0.0.1:{port}, process {os.getpid()}")
    paths = None if points.paths is None else tuple(map(str, points.paths))
    spec = Spec(where, points.keys, paths, how or Embedding(), opened.cache)
    known = zip(points.keys, task.labels.tolist(), task.how.tolist(), strict=True)
    studio = _studio(where, points, labels, opened)
    service = Service(
        opened,
        spec,
        source="digits (demo)" if source is None else Path(where).name,
        images=studio is not None,
        key=task.key,
        imported=[(key, label, how) for key, label, how in known if label is not None],
        names=classes,
    )
    return _Opened(service, studio, listening, port)


def _run(app: Any, opened: _Opened, say: Say) -> None:
    import uvicorn

    config = uvicorn.Config(
        app,
        ws="wsproto",
        http="h11",
        log_level="error",
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    try:
        with contextlib.suppress(KeyboardInterrupt):  # raised again after everything was closed
            uvicorn.Server(config).run(sockets=[opened.listening])
        say(f"Stopped. Your labels are in {opened.service.project.log.path}.")
    finally:
        opened.listening.close()


def _listen_again(port: Any) -> socket.socket:
    """Listen on the port of the last time, where a page that was left open looks for the server, or on any free one."""
    with contextlib.suppress(InputError):
        return _listen(port if isinstance(port, int) else 0)
    return _listen(0)


def _listen(port: int) -> socket.socket:
    if not 0 <= port < 65536:
        raise InputError(f"--port {port} must be from 1 to 65535, or 0 for any that is free.")
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named; else an answer's second part waits 40 ms
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as failure:
        listening.close()
        remedy = "Choose another, or leave it out."
        raise InputError(f"--port {port} cannot be used ({failure.strerror}). {remedy}") from failure
    listening.listen(128)
    return listening


def _studio(where: str, points: Points, labels: Sequence[str], project: Project) -> Studio | None:
    """What makes the pictures of the points; None where there are none."""
    from a2lp.serve.thumbnails import Drawn, Files, Studio

    if where == DEMO and points.features is not None:
        return Studio(Drawn(points.features.reshape(-1, 8, 8), 16))
    if points.paths is None:
        return None
    folders = [Path(place) for place in (where, *labels) if Path(place).is_dir()]
    roots = folders if Path(where).is_dir() else []  # paths that the user has listed may lie anywhere
    return Studio(Files(dict(zip(points.keys, points.paths, strict=True)), roots, project.thumbnails))

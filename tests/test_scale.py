"""A real Dask cluster on loopback: its records are those of one process, whoever is killed, and no block runs twice."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import a2lp
from a2lp import Pool, cores, errors, scale
from a2lp.cli.app import app
from a2lp.errors import ClusterError, InputError
from a2lp.pool import neighbours

pytest.importorskip("distributed")

# A method that notes each prediction: the process, and the first number of the block's queries.
METHOD = """
import os
import time
from dataclasses import dataclass
from a2lp.methods.prototypical import Prototypical

@dataclass(frozen=True)
class Noted(Prototypical):
    seconds: float = 0.0
    def predict(self, batch):
        if len(batch.query) > 1:  # not the one task that warms a process up
            with open(os.environ["NOTES"], "a") as notes:
                notes.write(f"{os.getpid()} {batch.query.sum()!r}\\n")
            time.sleep(self.seconds)
        return super().predict(batch)
"""


# What a worker loads, to note each block of cells.
PRELOAD = """
import os
import time
from functools import wraps
from a2lp.pool import cell_blocks

def noting(task):
    @wraps(task)
    def noted(folder, key, *block):
        with open(os.environ["NOTES"], "a") as notes:
            notes.write(f"{os.getpid()} {task.__name__} {block}\\n")
        time.sleep(0.2 if task.__name__ == "compare_block" else 0.04)
        return task(folder, key, *block)
    return noted

cell_blocks.compare_block, cell_blocks.join_block = noting(cell_blocks.compare_block), noting(cell_blocks.join_block)
"""


class Site:
    """A folder with the plug-in, and programs that know it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder, folder / "notes"
        info = folder / "noted-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: noted\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[a2lp.methods]\nnoted = noted:Noted\n")
        (folder / "noted.py").write_text(METHOD)
        (folder / "noted_blocks.py").write_text(PRELOAD)
        self.programs: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        paths = [str(Path(a2lp.__file__).parents[1]), str(self.folder), os.environ.get("PYTHONPATH", "")]
        known = {"PYTHONPATH": os.pathsep.join(paths), "NOTES": str(self.notes), "A2LP_CORES": "1"}
        command = [sys.executable, "-m", *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # Ctrl-C is ignored by what a shell starts in the background, and by all that this starts
        pipes["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.programs.append(subprocess.Popen(command, env=os.environ | known | environment, cwd=self.folder, **pipes))
        return self.programs[-1]

    def bench(self, out: str, *more: str, seconds: float = 0.0) -> subprocess.Popen[str]:
        size = ["--features", "digits", "--tasks", "1200", "--shots", "1", "--methods", "noted,prototypical"]
        return self.start("a2lp", "bench", *size, "--set", f"noted.seconds={seconds}", "--out", out, *more)

    def noted(self) -> list[list[str]]:
        return [line.split() for line in self.notes.read_text().splitlines()] if self.notes.exists() else []

    def records(self, out: str) -> dict[str, tuple[Any, ...]]:
        found = [json.loads(path.read_text()) for path in (self.folder / out / "records").glob("*.json")]
        return {each["key"]: (each["config"], each["accuracies"]) for each in found}

    @contextmanager
    def cluster(self, *options: str, workers: int = 2, **environment: str) -> Iterator[list[subprocess.Popen[str]]]:
        """A scheduler, whose file is ``scheduler.json``, and some workers."""
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        address = ["--host", "127.0.0.1", "--no-dashboard"]
        programs = [self.start("dask", "scheduler", *address, "--port", "0", "--scheduler-file", str(file))]
        wait(file.exists)
        worker = ["dask", "worker", "--scheduler-file", str(file), *address, "--nthreads", "1", *options]
        programs += [self.start(*worker, **environment) for _ in range(workers)]
        try:
            yield programs
        finally:
            for each in programs:
                end(each)


def processes(pid: int) -> list[Any]:
    """A process and those that it started."""
    psutil = pytest.importorskip("psutil")
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def end(program: subprocess.Popen[str]) -> None:
    program.kill()
    program.communicate(timeout=60)


def wait(condition: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    for program in site.programs:
        if program.poll() is None:
            end(program)


def finish(program: subprocess.Popen[str], seconds: float = 100) -> tuple[str, str]:
    out, err = program.communicate(timeout=seconds)
    assert program.returncode == 0, err
    return out, err


def test_a_worker_that_is_killed_costs_the_block_it_was_at(site: Site) -> None:
    finish(site.bench("plain", seconds=0.4))
    once = Counter(block for _, block in site.noted())
    assert len(once) == 12 and set(once.values()) == {1}
    site.notes.unlink()
    run = site.bench("cluster", "--scheduler", "local:2", seconds=0.4)
    wait(lambda: len(site.noted()) >= 4)
    ports = [port for each in processes(run.pid) for port in each.net_connections("tcp") if port.status == "LISTEN"]
    assert {port.laddr.ip for port in ports} == {"127.0.0.1"}  # whoever reaches one can run programs
    victim, block = site.noted()[-1]
    os.kill(int(victim), signal.SIGKILL)
    out, err = finish(run)
    assert site.records("cluster") == site.records("plain") and len(site.records("plain")) == 2
    again = Counter(block for _, block in site.noted())
    assert again.keys() == once.keys()
    assert {name: count for name, count in again.items() if count > 1} in ({}, {block: 2})
    assert "1 of 2 workers lost" in err and "on 2 workers" in err
    assert all(line.startswith(("note: ", "bench", "report: ")) for line in err.splitlines()), err
    assert "seconds per 1000 tasks" not in out
    assert not (site.folder / "cluster" / "blocks").exists()


def test_ctrl_c_is_one_line_and_ends_the_workers(site: Site) -> None:
    run = site.bench("out", "--scheduler", "local:1", seconds=0.4)
    wait(lambda: len(site.noted()) >= 2)
    started = processes(run.pid)
    for each in started:  # as a terminal does
        each.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert err.splitlines()[-1].startswith("interrupted: ") and "Traceback" not in err
    wait(lambda: not any(each.is_running() for each in started))


def test_a_lost_scheduler_is_one_sentence_and_the_same_command_continues(site: Site) -> None:
    def run() -> subprocess.Popen[str]:
        return site.bench("out", "--scheduler", "scheduler.json", seconds=0.5)

    with site.cluster() as programs:
        first = run()
        wait(lambda: len(site.noted()) >= 4)
        programs[0].kill()
        killed = time.monotonic()
        _, err = first.communicate(timeout=60)
        assert time.monotonic() - killed < 60
    assert first.returncode == 2
    lines = [line for line in err.splitlines() if not re.match("note: |bench on ", line)]
    assert len(lines) == 1 and lines[0].startswith("error: the scheduler of scheduler.json was lost. What is finished")
    cell = next(path for path in (site.folder / "out" / "blocks").glob("*/*.json") if '"noted"' in path.read_text())
    finished = len(list(cell.parent.glob(f"{cell.stem}.*.json")))
    before = len(site.noted())
    assert 2 <= finished < 12
    with site.cluster():
        finish(run())
    assert 0 < len(site.noted()) - before <= 12 - finished
    assert len({block for _, block in site.noted()}) == 12
    finish(site.bench("plain"))

    def accuracies(out: str) -> dict[str, list[float]]:
        return {config["method"]: found for config, found in site.records(out).values()}

    assert accuracies("out") == accuracies("plain")


def test_neighbours_on_workers_are_those_of_one_process_whoever_is_killed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(site.folder)
    monkeypatch.setattr(neighbours, "_EXACT", 100)
    x = np.random.default_rng(0).normal(size=(3000, 12)).astype(np.float32)
    Pool(x, folder="plain")

    def make() -> Pool:
        with scale.Cluster("scheduler.json") as cluster:
            return Pool(x, folder="cluster", cluster=cluster)

    def begun() -> Counter[str]:
        return Counter(" ".join(block) for _, *block in site.noted())

    for enough in (8, 30):  # while cells are compared, and while they are joined
        with site.cluster("--preload", "noted_blocks") as programs, ThreadPoolExecutor(1) as thread:
            run = thread.submit(make)
            wait(lambda enough=enough: len(begun()) >= enough)
            programs[0].kill()
            with pytest.raises(ClusterError, match=r"scheduler.json was lost. What is finished is kept"):
                run.result(timeout=60)
    with site.cluster("--preload", "noted_blocks"), ThreadPoolExecutor(1) as thread:
        run = thread.submit(make)
        wait(lambda: len(begun()) >= 50)
        victim, *block = site.noted()[-1]
        os.kill(int(victim), signal.SIGKILL)
        run.result(timeout=60)
    counts = begun()
    assert len(counts) > 100 and max(counts.values()) == 2
    again = {name for name, count in counts.items() if count > 1}
    assert len(again - {" ".join(block)}) <= 4  # in flight when a scheduler was killed
    files = {path.name: path.read_bytes() for path in (site.folder / "cluster").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (site.folder / "plain").iterdir()}


def test_classify_on_workers_writes_the_same_labels(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.folder)
    monkeypatch.setattr(neighbours, "_EXACT", 100)
    x = np.random.default_rng(0).normal(size=(5, 8))[np.arange(600) % 5] + np.random.default_rng(1).normal(
        size=(600, 8)
    )
    np.save("points.npy", x.astype(np.float32))
    Path("labels.csv").write_text("index,label\n" + "".join(f"{row},class {row % 5}\n" for row in range(40)))
    command = ["classify", "points.npy", "--labels", "labels.csv", "--out"]
    assert CliRunner().invoke(app, [*command, "plain.csv"]).exit_code == 0
    with site.cluster("--preload", "noted_blocks", workers=1):
        where = ["--folder", "stages", "--scheduler", "scheduler.json"]
        assert CliRunner().invoke(app, [*command, "cluster.csv", *where]).exit_code == 0
    assert len(site.noted()) > 20
    assert Path("cluster.csv").read_bytes() == Path("plain.csv").read_bytes()


def test_errors_of_a_cluster_are_explained(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.folder)
    monkeypatch.setattr(scale, "ALONE_SECONDS", 2.0)
    monkeypatch.setattr(scale, "_WATCH_SECONDS", 0.0)
    seen: list[tuple[int, int, int]] = []
    with (
        site.cluster("--no-nanny", workers=1, A2LP_CORES="") as programs,
        scale.Cluster("scheduler.json", lambda *now: seen.append(now)) as cluster,
    ):
        with cluster.work(3) as work:
            work.add("cores", cores.count, size=2)
            work.add("wrong", int, "no number")
            with pytest.raises(InputError, match="at most 1024 are sent"):
                work.add("large", len, "x" * 1100)
            found = {outcome.name: outcome for outcome in work}
        assert (found["cores"].answer, found["cores"].error) == (1, None)  # as many as the worker has threads
        assert isinstance(found["wrong"].error, ValueError)
        assert seen[-1] == (3, 3, 1)
        with cluster.work(1) as work, pytest.raises(ClusterError, match="all workers were lost"):
            work.add("long", time.sleep, 60)
            while not work.n_workers:
                work._workers.watch(work._client)
            end(programs[1])
            list(work)
        with cluster.work(1) as work, pytest.raises(ClusterError, match="was lost"):
            work.add("long", time.sleep, 60)
            end(programs[0])
            list(work)


def test_a_task_that_ends_its_workers_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.folder)
    with (
        site.cluster(workers=1),
        scale.Cluster("scheduler.json") as cluster,
        cluster.work(1) as work,
        pytest.raises(ClusterError, match=r"4 workers died .*\(bomb\), most often because it needs more memory"),
    ):
        # not at once: Dask gives up a worker that dies while it starts
        work.add("bomb", os.system, "sleep 1; kill -9 $PPID")
        list(work)


def test_schedulers_that_cannot_be_used_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(scale, "VISIBLE_SECONDS", 0.0)
    with pytest.raises(ClusterError, match=r"does not see .*none.npy. Commands and workers need the same folders"):
        scale.wait_for(tmp_path / "none.npy")
    with pytest.raises(InputError, match="asks for no workers"):
        scale.Cluster("local:0")
    with pytest.raises(InputError, match="neither local:N"):
        scale.Cluster("locale:2")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="no `address`"):
        scale.Cluster(str(tmp_path / "other.json"))
    with scale.Cluster("tcp://127.0.0.1:1") as cluster:
        with pytest.raises(ClusterError, match="no scheduler answers"):
            cluster.work(1)
        with pytest.raises(InputError, match="Name a folder with --folder DIR"):
            Pool(np.eye(3), cluster=cluster)


@pytest.mark.parametrize(
    "error",
    [
        errors.CorruptImageError("a.jpg", "it is empty"),
        errors.UnknownNameError("method", "lpp", ["lp"]),
        errors.MissingExtraError("images", "torch", "images"),
        errors.UnknownKeyError("no such key"),
    ],
)
def test_errors_survive_the_way_from_a_worker(error: errors.A2LPError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))

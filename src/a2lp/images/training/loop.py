"""``train``: pre-training on base classes, from images to weights."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from a2lp import environment
from a2lp.errors import A2LPError, InputError
from a2lp.images.backbones import save_weights
from a2lp.images.datasets import ImageSet
from a2lp.images.embed import choose_device
from a2lp.images.training import checkpoint
from a2lp.images.training.checkpoint import Look, Progress
from a2lp.images.training.config import TrainConfig
from a2lp.images.training.run import Run
from a2lp.images.training.schedule import Schedule
from a2lp.images.training.validate import Accuracy
from a2lp.images.view import View

_REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class Report:
    """What a progress callback is told.

    Attributes
    ----------
    done : float
        Part of the run that lies behind, 0 to 1.
    seconds : float
        Of training, those before a kill included.
    images : int
        Images that went through the network.
    look : Look or None
        Where a validation has just been done.
    note : str or None
        What is done before training starts.
    """

    done: float = 0.0
    seconds: float = 0.0
    images: int = 0
    look: Look | None = None
    note: str | None = None


@dataclass(frozen=True)
class TrainResult:
    """What a run gave.

    Attributes
    ----------
    weights : Path
        The safetensors file, with view and normalisation inside.
    view : View
        The view that validation chose.
    looks : tuple of Look
        The validation curve.
    record : dict
        What ``record.json`` says.
    """

    weights: Path
    view: View
    looks: tuple[Look, ...]
    record: dict[str, Any]


def train(
    config: TrainConfig,
    base: ImageSet,
    val: ImageSet | None,
    out: str | Path,
    *,
    device: str = "auto",
    workers: int | None = None,
    progress: Callable[[Report], object] = lambda report: None,
) -> TrainResult:
    """Train a backbone on base classes, and keep the averaged weights that are best on validation classes.

    A run that was killed goes on from its last checkpoint when it is called again with the same folder; one that is
    finished is not run again. Both are known by the configuration and by the content of the images.

    Parameters
    ----------
    config : TrainConfig
        Everything that decides the result.
    base, val : ImageSet
        Base classes, and validation classes to choose snapshot and view by; without the latter, the last averaged
        weights and the first view are taken.
    out : path
        Folder for ``weights.safetensors``, ``record.json``, ``log.jsonl`` and, until the end, ``checkpoint.pt``.
    device : str
        ``cpu``, ``cuda``, or ``auto``: a GPU where there is one.
    workers : int, optional
        Threads that decode images; as many as there are cores if left out.
    progress : callable
        Is given a ``Report`` now and then, and at each look.
    """
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out} cannot be made a folder ({error.strerror}). Name another.") from error
    if workers is None:
        workers = os.cpu_count() or 1
    if workers < 1:
        raise InputError(f"workers={workers} must be 1 or more: the number of threads that decode images.")
    progress(Report(note="checking the images"))
    identity = {"config": config.as_json(), "data": _describe("base", base, workers) | _describe("val", val, workers)}
    record = checkpoint.finished(out, identity)
    if record is not None:
        checkpoint.clean(out)
    else:
        checkpoint.claim(out)
        place = choose_device(device)
        with torch.random.fork_rng([place] if place.type == "cuda" else []), _fastest_convolutions():
            torch.manual_seed(config.seed)
            record = _train(config, base, val, out, place, workers, identity, progress)
    looks = tuple(Look(**look) for look in record["looks"])
    return TrainResult(out / checkpoint.WEIGHTS, View.parse(record["view"]), looks, record)


def _train(
    config: TrainConfig,
    base: ImageSet,
    val: ImageSet | None,
    out: Path,
    device: torch.device,
    workers: int,
    identity: dict[str, Any],
    progress: Callable[[Report], object],
) -> dict[str, Any]:
    began = time.perf_counter()
    progress(Report(note=f"reading the images of {base.name}"))
    run = Run(config, base, val, device, workers)
    state = Progress()
    found = checkpoint.read(out, identity, device)
    if found is not None:
        state, tensors = found
        run.restore(tensors)
        progress(Report(note=f"going on after step {state.step}"))
    checkpoint.write_log(out, state.looks)
    if device.type == "cuda":
        progress(Report(note="compiling"))
    compiled = run.compile()
    prepared = time.perf_counter() - began
    _loop(run, state, out, lambda: checkpoint.write(out, identity, state, run.tensors()), progress)
    progress(Report(1.0, state.seconds, state.step * config.shown, note="choosing the view"))
    views = _choose_view(run, state)
    view = max(views, key=lambda view: views[view].score) if views else config.views[0]
    record = (
        identity
        | {
            "view": str(view),
            "views": {str(view): asdict(accuracy) for view, accuracy in views.items()},
            "best": asdict([look for look in state.looks if look.best][-1]),
            "looks": [asdict(look) for look in state.looks],
            "seconds": round(state.seconds, 2),
            "preparation_seconds": round(prepared, 2),
            "steps": state.step,
            "images": state.step * config.shown,
            "stages": compiled,
            "precision": "bfloat16" if run.bfloat16 else "float32",
        }
        | environment.stamp(str(device))
    )
    about = {"run": config.name, "recipe": config.recipe, "base": identity["data"]["base"]}
    best = run.averages[0].net  # as _choose_view left it
    save_weights(best, out / checkpoint.WEIGHTS, about=about, view=view, mean=config.mean, std=config.std)
    checkpoint.write_record(out, record)  # last: it says that the rest is there
    checkpoint.clean(out)
    return record


def _loop(run: Run, state: Progress, out: Path, save: Callable[[], None], progress: Callable[[Report], object]) -> None:
    """Take steps and looks until the schedule is over."""
    config, schedule = run.config, Schedule(run.config, run.steps_per_epoch)
    began, reported, saved = time.perf_counter() - state.seconds, 0.0, state.seconds
    done = schedule.done(state.step, state.seconds)
    looks = schedule.looks_due(done)
    while not schedule.over(done):
        lr = schedule.lr(state.step, done)
        run.step(state.step, lr)
        state.step += 1
        state.seconds = time.perf_counter() - began
        done = schedule.done(state.step, state.seconds)
        look = None
        if schedule.looks_due(done) > looks:
            looks = schedule.looks_due(done)
            look = take_look(run, state, lr)
            checkpoint.append_log(out, look)
            state.seconds = time.perf_counter() - began
            done = schedule.done(state.step, state.seconds)
        if state.seconds - saved >= config.checkpoint_seconds or schedule.over(done):
            save()
            saved = time.perf_counter() - began  # this time counts with the next step's: a look may be due by then
        if look is not None or state.seconds - reported >= _REPORT_SECONDS:
            reported = state.seconds
            progress(Report(min(1.0, done / config.stop), state.seconds, state.step * config.shown, look))


def take_look(run: Run, state: Progress, lr: float) -> Look:
    """Validate the averaged weights, and keep them if they are the best until now."""
    loss = float(run.loss_sum) / (state.step - state.since)
    run.loss_sum.zero_()
    state.since = state.step
    if not math.isfinite(loss):
        raise A2LPError(
            f"the loss is {loss} after step {state.step}: training has diverged at lr={run.config.lr}. Lower lr, or "
            "raise warmup."
        )
    accuracy, statistics, best, decay = None, "averaged", True, run.averages[0].decay
    if run.validation is None:
        state.best_state = run.averages[0].state()
    else:
        decay, statistics, accuracy, weights = max(run.accuracies(state.step), key=lambda found: found.accuracy.score)
        best = state.best_score is None or accuracy.score > state.best_score
        if best:
            state.best_score, state.best_state = accuracy.score, weights
    look = Look(
        step=state.step,
        epoch=round(state.step / run.steps_per_epoch, 2),
        seconds=round(state.seconds, 2),
        images=state.step * run.config.shown,
        loss=loss,
        lr=lr,
        one_shot=None if accuracy is None else accuracy.one,
        five_shot=None if accuracy is None else accuracy.five,
        batch_norm=statistics,
        best=best,
        decay=decay,
    )
    state.looks.append(look)
    return look


def _choose_view(run: Run, state: Progress) -> dict[View, Accuracy]:
    """Take the best weights back, and measure them at every candidate view; without validation, at none."""
    assert state.best_state is not None
    net = run.averages[0].net
    net.load_state_dict(state.best_state)
    return {} if run.validation is None else {view: run.accuracy(net, view) for view in run.config.views}


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Let cuDNN try its algorithms on each new shape, of which there are few here."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _describe(part: str, images: ImageSet | None, workers: int) -> dict[str, str | None]:
    """What a record says of the images, in words and by their content."""
    if images is None:
        return {part: None}
    classes = 0 if images.labels is None else len(set(images.labels.tolist()))
    words = f"{images.name}: {len(images)} images, {classes} classes"
    return {part: words, f"{part}_sha256": images.fingerprint(workers)}

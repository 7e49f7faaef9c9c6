"""``train``: pre-training on base classes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from a2lp import cores, environment
from a2lp.checks import require_whole, shown
from a2lp.errors import A2LPError, InputError, WeightsFileError
from a2lp.files import reading, writing
from a2lp.images.backbones.checkpoints import save_weights
from a2lp.images.backbones.torch_backbone import choose_device
from a2lp.images.backbones.weight_files import read_weights
from a2lp.images.datasets import ImageSet
from a2lp.images.training import checkpoint
from a2lp.images.training.checkpoint import Evaluation, RunState
from a2lp.images.training.config import TrainConfig
from a2lp.images.training.run import Run
from a2lp.images.view import View

_REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class Report:
    """The argument of a progress callback; numbers count what was done before a kill, too."""

    done: float = 0.0  # the part of the run, 0 to 1
    seconds: float = 0.0  # of training so far
    images: int = 0  # so far
    evaluation: Evaluation | None = None  # a new one
    note: str | None = None  # the current activity outside of training steps


@dataclass(frozen=True)
class TrainResult:
    """The result of a run."""

    weights: Path  # the safetensors file
    view: View  # the best on validation classes
    evaluations: tuple[Evaluation, ...]  # the validation curve
    record: dict[str, Any]  # the content of record.json


@dataclass(frozen=True)
class Schedule:
    """Which part of a run is done, by steps or by time, and its learning rate."""

    config: TrainConfig
    steps_per_epoch: int

    def done(self, step: int, seconds: float) -> float:
        """The part of the schedule that is done after ``step`` steps and ``seconds`` seconds."""
        if self.config.epochs is not None:
            return step / max(1, round(self.config.epochs * self.steps_per_epoch))
        assert self.config.minutes is not None
        return seconds / (60 * self.config.minutes)

    def over(self, done: float) -> bool:
        """Whether the run ends here."""
        return done >= self.config.stop * (1 - 1e-9)

    def evaluations_due(self, done: float) -> int:
        """How many evaluations should have been made by now; they are spread evenly over the run."""
        return math.floor(min(1.0, done / self.config.stop) * self.config.evaluations + 1e-9)

    def lr(self, step: int, done: float) -> float:
        """The learning rate of step ``step`` (from 0)."""
        warm = min(1.0, (step + 1) / self.config.warmup) if self.config.warmup else 1.0
        if self.config.schedule == "step":
            return self.config.lr * warm * 0.1 ** math.floor(4 * min(done, 1 - 1e-9))
        return self.config.lr * warm * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def train(
    config: TrainConfig,
    base: ImageSet,
    val: ImageSet | None,
    out: str | Path,
    *,
    device: str = "auto",
    workers: int | None = None,
    commit: str | None = None,
    progress: Callable[[Report], object] = lambda report: None,
) -> TrainResult:
    """Train a backbone on base classes, and keep the averaged weights that are best on validation classes.

    A run that was killed continues from its last checkpoint when it is called again with the same folder; a finished
    one is not run again. A run is identified by its configuration and by the content of the images.

    Parameters
    ----------
    config : TrainConfig
        All settings that affect the result.
    base, val : ImageSet
        Base classes, and validation classes to choose weights and view; with ``val=None``, the last averaged weights
        and the first view are taken.
    out : path
        Folder for ``weights.safetensors``, ``record.json``, ``log.jsonl`` and, until the end, ``checkpoint.pt``.
    device : str
        ``cpu``, ``cuda``, or ``auto``: a GPU if available.
    workers : int, optional
        Threads that decode images; by default one for each core.
    commit : str, optional
        The commit of the code, for the record; by default that of the checkout that a2lp is imported from.
    progress : callable
        Called with a ``Report`` several times a second, and at each evaluation.
    """
    out = Path(out)
    with writing(out, "Name another folder."):
        out.mkdir(parents=True, exist_ok=True)
    workers = cores.count() if workers is None else workers
    require_whole("workers", workers, 1, "It is the number of threads that decode images.")
    if commit is not None and not re.fullmatch(r"[0-9a-f]{7,64}(-dirty)?", commit):
        raise InputError(f"commit={shown(commit)} must be a hash of git, 7 to 64 hexadecimal digits. Leave it out.")
    progress(Report(note="checking the images"))
    identity = {"config": config.as_json(), "data": _describe("base", base, workers) | _describe("val", val, workers)}
    for name, weights in (("start", config.start), ("teacher", config.teacher)):
        if weights is not None:
            identity["data"][f"{name}_sha256"] = read_weights(weights).digest
    record = checkpoint.finished(out, identity)
    if record is None:
        chosen = choose_device(device)
        with torch.random.fork_rng([chosen] if chosen.type == "cuda" else []), _fastest_convolutions():
            torch.manual_seed(config.seed)
            began = time.perf_counter()
            progress(Report(note=f"reading the images of {base.name}"))
            run = Run(config, base, val, chosen, workers)
            entries = _train(run, out, identity, progress, began)
            record = identity | entries | environment.stamp(str(chosen)) | ({"commit": commit} if commit else {})
        checkpoint.write_record(out, record)  # last: a run with a record is finished
    checkpoint.clean(out)
    evaluations = tuple(Evaluation.of(values) for values in record["evaluations"])
    return TrainResult(out / checkpoint.WEIGHTS, View.parse(record["view"]), evaluations, record)


def _train(
    run: Run, out: Path, identity: dict[str, Any], progress: Callable[[Report], object], began: float
) -> dict[str, Any]:
    """Train to the end, write the weights, and return the entries of the record."""
    config, state = run.config, RunState()
    found = checkpoint.read(out, identity, run.averages[0].state(), run.device)
    if found is not None:
        state, tensors = found
        path = out / checkpoint.CHECKPOINT
        with reading(path, "a checkpoint", remedy="Delete it to train from the start.", error=WeightsFileError):
            run.restore(tensors)
        checkpoint.write_log(out, state.evaluations)  # a kill may have come between checkpoint and log
        progress(Report(note=f"continuing after step {state.step}"))
    if run.device.type == "cuda":
        progress(Report(note="compiling"))
    compiled = run.compile()
    prepared = time.perf_counter() - began

    def save() -> None:
        checkpoint.write(out, identity, state, run.tensors())
        checkpoint.write_log(out, state.evaluations)  # after the checkpoint: a log without one is refused

    _loop(run, state, save, progress)
    images = state.step * config.images_per_step
    progress(Report(1.0, state.seconds, images, note="choosing the view"))
    if state.best_state is None:
        raise A2LPError("the checkpoint is of the end of the run and has no evaluation. Delete it to train again.")
    net = run.averages[0].net
    net.load_state_dict(state.best_state)
    views = {} if run.validation is None else {view: run.accuracy(net, view) for view in config.views}
    view = max(views, key=lambda view: sum(views[view])) if views else config.views[0]
    about = {"run": config.name, "recipe": config.recipe, "base": identity["data"]["base"]}
    save_weights(net, out / checkpoint.WEIGHTS, about=about, view=view, mean=config.mean, std=config.std)
    return {
        "view": str(view),
        "views": {str(view): {"one": one, "five": five} for view, (one, five) in views.items()},
        "best": asdict([evaluation for evaluation in state.evaluations if evaluation.best][-1]),
        "evaluations": [asdict(evaluation) for evaluation in state.evaluations],
        "seconds": round(state.seconds, 2),
        "preparation_seconds": round(prepared, 2),
        "steps": state.step,
        "images": images,
        "stages": compiled,
        "precision": "bfloat16" if run.bfloat16 else "float32",
    }


def _loop(run: Run, state: RunState, save: Callable[[], None], progress: Callable[[Report], object]) -> None:
    """Take steps and evaluate until the schedule is over."""
    config, schedule = run.config, Schedule(run.config, run.steps_per_epoch)
    began, reported, saved = time.perf_counter() - state.seconds, 0.0, state.seconds
    done = schedule.done(state.step, state.seconds)
    evaluated = schedule.evaluations_due(done)
    while not schedule.over(done):
        lr = schedule.lr(state.step, done)
        run.step(state.step, lr)
        state.step += 1
        state.seconds = time.perf_counter() - began
        done = schedule.done(state.step, state.seconds)
        evaluation = None
        if schedule.evaluations_due(done) > evaluated:
            evaluated = schedule.evaluations_due(done)
            evaluation = evaluate(run, state, lr)
            state.seconds = time.perf_counter() - began
            done = schedule.done(state.step, state.seconds)
        if state.seconds - saved >= config.checkpoint_seconds or evaluation is not None or schedule.over(done):
            save()
            # the time for saving counts with the next step: an evaluation may be due by then
            saved = time.perf_counter() - began
        if evaluation is not None or state.seconds - reported >= _REPORT_SECONDS:
            reported, images = state.seconds, state.step * config.images_per_step
            progress(Report(min(1.0, done / config.stop), state.seconds, images, evaluation))


def evaluate(run: Run, state: RunState, lr: float) -> Evaluation:
    """Validate the averaged weights, and keep them if they are the best so far."""
    loss = float(run.loss_sum) / (state.step - state.since)
    run.loss_sum.zero_()
    state.since = state.step
    if not math.isfinite(loss):
        raise A2LPError(
            f"the loss is {loss} after step {state.step}: training has diverged at lr={run.config.lr}. Lower lr, or "
            "raise warmup."
        )
    one_shot, five_shot, batch_norm, best, decay = None, None, "averaged", True, run.averages[0].decay
    if run.validation is None:
        state.best_state = run.averages[0].state()
    else:
        candidates = run.candidates(state.step)
        (one_shot, five_shot), decay, batch_norm, weights = max(candidates, key=lambda candidate: sum(candidate[0]))
        best = state.best_score is None or one_shot + five_shot > state.best_score
        if best:
            state.best_score, state.best_state = one_shot + five_shot, weights
    epoch, seconds = round(state.step / run.steps_per_epoch, 2), round(state.seconds, 2)
    images = state.step * run.config.images_per_step
    evaluation = Evaluation(state.step, epoch, seconds, images, loss, lr, one_shot, five_shot, batch_norm, best, decay)
    state.evaluations.append(evaluation)
    return evaluation


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Let cuDNN try its algorithms on each new shape; there are only a few here."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _describe(part: str, images: ImageSet | None, workers: int) -> dict[str, str | None]:
    """Entries of the record on the images: a description, and a hash of their content."""
    if images is None:
        return {part: None}
    classes = 0 if images.labels is None else len(set(images.labels.tolist()))
    text = f"{images.name}: {len(images)} images, {classes} classes"
    return {part: text, f"{part}_sha256": images.fingerprint(workers)}

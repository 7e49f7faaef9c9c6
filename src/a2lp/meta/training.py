"""``train``: a head on labelled features of base classes, by episodes that resemble the tasks."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from a2lp import environment
from a2lp.arrays import NDArray, chunks
from a2lp.checks import check_fields, number, require_name, require_whole, whole
from a2lp.errors import A2LPError, InputError, UnknownNameError, WeightsFileError
from a2lp.features.feature_set import FeatureSet
from a2lp.files import check_target, exists, reading
from a2lp.meta import checkpoint
from a2lp.meta.base import Episode, MetaMethod, as_episode
from a2lp.meta.checkpoint import Evaluation, RunState, read_weights, same_names, write_weights
from a2lp.methods.registry import method_class
from a2lp.tasks.samplers import draw

_EPISODES, _VALIDATION = range(2)  # separate streams of random numbers
TRAINABLE = ("sib", "sib_e3bm", "tpn_learned", "can", "dpgn")
VALIDATION_TASKS = 200  # of each number of shots
Progress = Callable[[int, Evaluation | None], object]


@dataclass(frozen=True)
class MetaConfig:
    """All settings that affect the result."""

    method: str
    optimizer: str  # "adamw", or "sgd" with Nesterov momentum 0.9
    lr: float = number(MISSING, "positive", "Leave it out for the method's own.")  # falls along a cosine
    weight_decay: float = number(MISSING, "0 or more", "Leave it out.")
    steps: int = whole(MISSING, 1, "Leave it out for the method's own.")
    batch: int = whole(MISSING, 1, "Leave it out for the method's own.")  # episodes of a step
    ways: int = whole(5, 2, "5 is usual.")  # classes of an episode
    queries: int = whole(15, 1, "15 is usual.")  # of each class
    shots: tuple[int, ...] = (1, 5)  # labelled examples of each class; steps take them in turn
    # The part of a base class's distance from the mean of all that is kept: a backbone that was trained on the base
    # classes separates them better than other classes, which makes episodes too easy.
    spread: float = number(0.6, "above 0 and at most 1", "1 leaves them alone.")
    evaluations: int = whole(10, 1, "10 is usual.")  # on validation classes, each followed by a checkpoint
    seed: int = whole(0, 0, "0 is usual.")

    def __post_init__(self) -> None:
        require_name("optimizer", self.optimizer, ("sgd", "adamw"))
        check_fields(self)
        if not self.shots:
            raise InputError("shots is empty; give at least one number of labelled examples per class, such as 1,5.")
        for shot in self.shots:
            require_whole("shots", shot, 1, "1 and 5 are usual.")

    @classmethod
    def of(cls, method: str, **changes: Any) -> MetaConfig:
        """The recipe of a method, with changes; None leaves a setting as it is."""
        given = {name: value for name, value in changes.items() if value is not None}
        return cls(method, **{"optimizer": "adamw"} | trainable(method).recipe | given)


def trainable(name: str) -> type[MetaMethod]:
    """The class of a method that can be trained."""
    found = method_class(name)
    if not issubclass(found, MetaMethod):
        raise UnknownNameError("method to train:", name, TRAINABLE)
    return found


def train(
    config: MetaConfig,
    base: FeatureSet,
    out: str | Path,
    *,
    val: FeatureSet | None = None,
    force: bool = False,
    progress: Progress = lambda step, evaluation: None,
) -> list[Evaluation]:
    """Train a head on base classes, and write the weights that are best on validation classes.

    A run that was killed continues from a checkpoint beside ``out`` when it is called again, and ends with the same
    weights. A finished run is not run again.

    Parameters
    ----------
    config : MetaConfig
    base, val : FeatureSet
        Labelled features of base classes and of validation classes; without the latter, the last weights are kept.
    out : path
        The .safetensors file to write.
    force : bool
        Whether a file of another run is replaced.
    progress : callable
        Called with the steps done, and with the new evaluation, if any.
    """
    out = Path(out)
    # an existing file is read below: it may be of this run
    check_target(out, (".safetensors",), "a trained head", force=True)
    identity = {
        "config": json.loads(json.dumps(asdict(config))),
        "base": _describe(base, "base"),
        "val": None if val is None else _describe(val, "val"),
    }
    if not force and exists(out):
        about = same_names(read_weights(out).about)
        if about.get("identity") != identity:
            raise WeightsFileError(
                f"{out} is of another run. Choose another name, or replace it with --force (in Python: force=True)."
            )
        with reading(out, "a trained head", error=WeightsFileError):
            evaluations = [Evaluation.of(values) for values in about["evaluations"]]
            if not any(evaluation.best for evaluation in evaluations):
                raise InputError("none of its evaluations is the best. Train it again.")
            return evaluations
    run, path = _Run(config, base, val), out.with_suffix(".checkpoint.pt")
    state = checkpoint.restore(path, identity, run.head, run.optimizer)
    began = time.perf_counter()
    run.loop(state, lambda: checkpoint.write(path, identity, state, run.head, run.optimizer), progress)
    run.head.load_state_dict(state.best_head)
    about = {
        "method": config.method,
        "identity": identity,
        "evaluations": [asdict(evaluation) for evaluation in state.evaluations],
        "seconds": round(time.perf_counter() - began, 1),
    } | environment.stamp()
    write_weights(out, run.head, base.features.shape[1], config.ways, about)
    path.unlink(missing_ok=True)
    return state.evaluations


class _Run:
    """A head, its optimizer, and its episodes."""

    def __init__(self, config: MetaConfig, base: FeatureSet, val: FeatureSet | None) -> None:
        self.config, self.method = config, trainable(config.method)(seed=config.seed)
        self.labels = base.labels
        self.features = spread_classes(base.features.astype(np.float32), base.labels, config.spread)
        self.head = self.method.new_head(self.features.shape[1], config.ways)
        settings: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
        if config.optimizer == "adamw":
            self.optimizer = torch.optim.AdamW(self.head.parameters(), **settings)
        else:
            self.optimizer = torch.optim.SGD(self.head.parameters(), momentum=0.9, nesterov=True, **settings)
        self.validation = []
        if val is not None:
            features, n_tasks = val.features.astype(np.float32), VALIDATION_TASKS
            self.validation = [self._draw(features, val.labels, n, n_tasks, _VALIDATION, n) for n in config.shots]

    def loop(self, state: RunState, save: Callable[[], None], progress: Progress) -> None:
        """Take steps and evaluate until all are done."""
        steps, rounds = self.config.steps, self.config.evaluations
        due = {math.ceil(steps * (i + 1) / rounds) for i in range(rounds)}
        while state.step < steps:
            state.loss += self.step(state.step)
            state.step += 1
            evaluation = None
            if state.step in due:
                evaluation = self.evaluate(state)
                save()
            progress(state.step, evaluation)

    def step(self, step: int) -> float:
        """Take step ``step`` (from 0), and return its loss."""
        shots = self.config.shots[step % len(self.config.shots)]
        loss = self.head.loss(*self._draw(self.features, self.labels, shots, self.config.batch, _EPISODES, step))
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * 0.5 * (1 + math.cos(math.pi * step / self.config.steps))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def evaluate(self, state: RunState) -> Evaluation:
        """Evaluate the head on validation classes, and keep its weights if they are the best so far."""
        since = state.step - (state.evaluations[-1].step if state.evaluations else 0)
        loss, state.loss = state.loss / since, 0.0
        if not math.isfinite(loss):
            raise A2LPError(f"the loss is {loss} after step {state.step}: training has diverged. Lower lr.")
        accuracies = tuple(self._accuracy(episode, targets) for episode, targets in self.validation) or None
        score = float(state.step if accuracies is None else sum(accuracies))
        best = score > state.best
        if best:
            state.best = score
            state.best_head = {name: tensor.clone() for name, tensor in self.head.state_dict().items()}
        evaluation = Evaluation(state.step, loss, accuracies, best)
        state.evaluations.append(evaluation)
        return evaluation

    def _accuracy(self, episode: Episode, targets: Tensor) -> float:
        """The accuracy of the whole method, in percent."""
        correct = 0.0
        with torch.no_grad():
            for part in chunks(len(targets), self.method.block):
                answer = self.method.answer(self.head, Episode(*(x[part] for x in episode)), targets.shape[1])
                correct += float((answer.argmax(-1) == targets[part]).double().mean(1).sum())
        return 100 * correct / len(targets)

    def _draw(self, features: Any, labels: Any, n_shot: int, n_tasks: int, *stream: int) -> tuple[Episode, Tensor]:
        """An episode and the labels of its queries, by seed and stream alone: a run that continues draws the same."""
        seed = int(np.random.SeedSequence((self.config.seed, *stream)).generate_state(1)[0])
        n_way, n_query = self.config.ways, self.config.queries
        tasks = draw("balanced", labels, seed=seed, n_way=n_way, n_shot=n_shot, n_query=n_query, n_tasks=n_tasks)
        return as_episode(self.method._points(tasks.batch(features))), torch.from_numpy(tasks.query_labels)


def spread_classes(features: NDArray, labels: Any, spread: float) -> NDArray:
    """Vectors with each class moved towards the mean of all class means, to ``spread`` times its distance."""
    _, codes = np.unique(labels, return_inverse=True)
    sums = np.zeros((codes.max() + 1, features.shape[1]))
    np.add.at(sums, codes, features)
    means = sums / np.bincount(codes)[:, None]
    away = (means - means.mean(axis=0)).astype(features.dtype)
    moved: NDArray = features - (1 - spread) * away[codes]
    return moved


def _describe(features: FeatureSet, part: str) -> str:
    """A description of features, with a hash of their content."""
    if features.labels is None:
        raise InputError(f"{part}: {features.name!r} has no labels; training needs the class of each vector.")
    digest = hashlib.sha256(features.features.tobytes() + features.labels.tobytes()).hexdigest()
    n, d = features.features.shape
    return f"{features.name}: {n} x {d}, {features.n_classes} classes, sha256:{digest[:16]}"

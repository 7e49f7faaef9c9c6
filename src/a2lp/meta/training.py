"""``train``: a head from labelled features of base classes, by episodes like the tasks it is for."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from a2lp import environment
from a2lp.arrays import chunks
from a2lp.checks import require_name, require_number, require_whole
from a2lp.errors import A2LPError, InputError, UnknownNameError, WeightsFileError
from a2lp.features.feature_set import FeatureSet
from a2lp.files import check_target, exists, reading
from a2lp.meta import checkpoint
from a2lp.meta.base import Episode, Head, MetaMethod, as_episode
from a2lp.meta.checkpoint import Evaluation, RunState, same_names
from a2lp.meta.weights import read_weights, write_weights
from a2lp.methods.registry import method_class
from a2lp.tasks.lists import TaskList
from a2lp.tasks.samplers import draw

_EPISODES, _VALIDATION = range(2)  # separate streams of random numbers
TRAINABLE = ("sib", "sib_e3bm", "tpn_learned", "can", "dpgn")
VALIDATION_TASKS = 200  # of each number of shots


@dataclass(frozen=True)
class MetaConfig:
    """Everything but the data that decides the result.

    Attributes
    ----------
    method : str
    optimizer, lr, weight_decay, steps, batch
        As in ``Recipe``; the rate falls to zero along half a cosine.
    ways, queries : int
        Classes of an episode, and queries of each.
    shots : tuple of int
        Labelled examples per class; steps take them by turns.
    spread : float
        How much of a base class's distance to the mean of all is kept. A backbone that was trained on the base classes
        separates them better than other classes, and episodes that are too easy teach little.
    evaluations : int
        The number of evaluations on validation classes; each is followed by a checkpoint.
    seed : int
    """

    method: str
    optimizer: str
    lr: float
    weight_decay: float
    steps: int
    batch: int
    ways: int = 5
    queries: int = 15
    shots: tuple[int, ...] = (1, 5)
    spread: float = 0.6
    evaluations: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        require_name("optimizer", self.optimizer, ("sgd", "adamw"))
        for name in ("steps", "batch", "queries", "evaluations"):
            require_whole(name, getattr(self, name), 1, "Leave it out for the method's own.")
        require_whole("ways", self.ways, 2, "5 is usual.")
        require_whole("seed", self.seed, 0, "0 is usual.")
        if not self.shots:
            raise InputError("shots is empty; give at least one number of labelled examples per class, such as 1,5.")
        for shot in self.shots:
            require_whole("shots", shot, 1, "1 and 5 are usual.")
        require_number("lr", self.lr, "positive", lambda v: v > 0, "Leave it out for the method's own.")
        require_number("weight_decay", self.weight_decay, "0 or more", lambda v: v >= 0, "Leave it out.")
        require_number("spread", self.spread, "above 0 and at most 1", lambda v: 0 < v <= 1, "1 leaves them alone.")

    @classmethod
    def of(cls, method: str, **changes: Any) -> MetaConfig:
        """The recipe of a method, with changes; None leaves a setting as it is."""
        recipe = trainable(method).recipe
        given = {name: value for name, value in changes.items() if value is not None}
        return cls(method, **asdict(recipe) | given)


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
    progress: Callable[[int, Evaluation | None], object] = lambda step, evaluation: None,
) -> list[Evaluation]:
    """Train a head on base classes, and write the one that is best on validation classes.

    Beside ``out`` there is a checkpoint while it runs: a run that was killed continues from there when it is called
    again, to the same weights. A finished run is not run again.

    Parameters
    ----------
    config : MetaConfig
    base : FeatureSet
        Labelled features of base classes.
    out : path
        The .safetensors file to write.
    val : FeatureSet, optional
        Labelled features of validation classes; without them, the last weights are kept.
    force : bool
        Whether a file of another run is replaced.
    progress : callable
        Called with the steps done, and with the evaluation that has just been made, if any.
    """
    out = Path(out)
    # an existing file is read below: it may be of this very run
    check_target(out, (".safetensors",), "a trained head", force=True)
    identity = {
        "config": json.loads(json.dumps(asdict(config))),
        "base": _describe(base, "base"),
        "val": None if val is None else _describe(val, "val"),
    }
    evaluations = None if force else _finished(out, identity)
    if evaluations is None:
        method = trainable(config.method)(seed=config.seed)
        run = _Run(config, method, base, val)
        state = checkpoint.restore(out, identity, run.head, run.optimizer)
        began = time.perf_counter()
        run.loop(state, lambda: checkpoint.write(out, identity, state, run.head, run.optimizer), progress)
        run.head.load_state_dict(state.best_head)
        evaluations = state.evaluations
        about = {
            "method": config.method,
            "identity": identity,
            "evaluations": [asdict(evaluation) for evaluation in evaluations],
            "seconds": round(time.perf_counter() - began, 1),
        } | environment.stamp()
        write_weights(out, run.head, base.features.shape[1], config.ways, about)
        checkpoint.path_of(out).unlink(missing_ok=True)
    return evaluations


def _finished(out: Path, identity: dict[str, Any]) -> list[Evaluation] | None:
    """The evaluations of this very run if it is finished; an error if the file is another run's."""
    if not exists(out):
        return None
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


class _Run:
    """A head, its optimizer and the source of its episodes."""

    def __init__(self, config: MetaConfig, method: MetaMethod, base: FeatureSet, val: FeatureSet | None) -> None:
        self.config, self.method = config, method
        assert base.labels is not None
        self.labels = base.labels
        self.features = spread_classes(base.features.astype(np.float32), base.labels, config.spread)
        self.head = method.new_head(self.features.shape[1], config.ways)
        self.optimizer = _optimizer(self.head, config)
        self.validation = [] if val is None else self._validation(val)

    def loop(
        self, state: RunState, save: Callable[[], None], progress: Callable[[int, Evaluation | None], object]
    ) -> None:
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
        """Take step ``step`` (from 0); its loss."""
        shots = self.config.shots[step % len(self.config.shots)]
        tasks = self._draw(self.labels, shots, self.config.batch, (_EPISODES, step))
        loss = self.head.loss(self._episode(tasks, self.features), torch.from_numpy(tasks.query_labels))
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * 0.5 * (1 + math.cos(math.pi * step / self.config.steps))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def evaluate(self, state: RunState) -> Evaluation:
        """Evaluate the head on validation classes, and keep it if it is the best so far."""
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

    def _validation(self, val: FeatureSet) -> list[tuple[Episode, Tensor]]:
        assert val.labels is not None
        found = []
        for shots in self.config.shots:
            tasks = self._draw(val.labels, shots, VALIDATION_TASKS, (_VALIDATION, shots))
            found.append((self._episode(tasks, val.features.astype(np.float32)), torch.from_numpy(tasks.query_labels)))
        return found

    def _accuracy(self, episode: Episode, targets: Tensor) -> float:
        """In percent, of the whole method."""
        correct = 0.0
        with torch.no_grad():
            for part in chunks(len(targets), self.method.block):
                answer = self.method.answer(self.head, Episode(*(x[part] for x in episode)), targets.shape[1])
                correct += float((answer.argmax(-1) == targets[part]).double().mean(1).sum())
        return 100 * correct / len(targets)

    def _episode(self, tasks: TaskList, features: np.ndarray[Any, Any]) -> Episode:
        return as_episode(self.method._points(tasks.batch(features)))

    def _draw(self, labels: np.ndarray[Any, Any], shots: int, n_tasks: int, stream: tuple[int, int]) -> TaskList:
        # a function of seed and step alone, so a run that continues draws the same episodes
        seed = int(np.random.SeedSequence((self.config.seed, *stream)).generate_state(1)[0])
        n_way, n_query = self.config.ways, self.config.queries
        return draw("balanced", labels, seed=seed, n_way=n_way, n_shot=shots, n_query=n_query, n_tasks=n_tasks)


def spread_classes(features: np.ndarray[Any, Any], labels: Any, spread: float) -> np.ndarray[Any, Any]:
    """Vectors with each class moved towards the mean of all class means, to ``spread`` of its distance."""
    _, codes = np.unique(labels, return_inverse=True)
    sums = np.zeros((codes.max() + 1, features.shape[1]))
    np.add.at(sums, codes, features)
    means = sums / np.bincount(codes)[:, None]
    away = (means - means.mean(axis=0)).astype(features.dtype)
    moved: np.ndarray[Any, Any] = features - (1 - spread) * away[codes]
    return moved


def _optimizer(head: Head, config: MetaConfig) -> torch.optim.Optimizer:
    if config.optimizer == "adamw":
        return torch.optim.AdamW(head.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        head.parameters(), lr=config.lr, weight_decay=config.weight_decay, momentum=0.9, nesterov=True
    )


def _describe(features: FeatureSet, part: str) -> str:
    """A description that identifies features, with a hash of their content."""
    if features.labels is None:
        raise InputError(f"{part}: {features.name!r} has no labels; training needs the class of each vector.")
    digest = hashlib.sha256(features.features.tobytes() + features.labels.tobytes()).hexdigest()
    n, d = features.features.shape
    return f"{features.name}: {n} x {d}, {features.n_classes} classes, sha256:{digest[:16]}"

"""``train``: a head from labelled features of base classes, by episodes that look like the tasks to come."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from a2lp import environment
from a2lp.arrays import chunks
from a2lp.errors import A2LPError, InputError, UnknownNameError, WeightsFileError
from a2lp.features.common import replacing
from a2lp.features.sets import FeatureSet
from a2lp.meta.base import Episode, Head, MetaMethod, as_episode
from a2lp.meta.weights import SUFFIX, read_weights, write_weights
from a2lp.methods.base import require_number, require_whole
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
        holds them further apart than classes it has not seen, and episodes that are too easy teach little.
    looks : int
        How often validation classes are looked at, and a checkpoint is written.
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
    looks: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.optimizer not in ("sgd", "adamw"):
            raise UnknownNameError("optimizer", self.optimizer, ("sgd", "adamw"))
        for name in ("steps", "batch", "queries", "looks"):
            require_whole(name, getattr(self, name), 1, "Leave it out for the method's own.")
        require_whole("ways", self.ways, 2, "5 is usual.")
        require_whole("seed", self.seed, 0, "0 is as good as any.")
        if not self.shots:
            raise InputError("shots is empty; give at least one number of labelled examples per class, such as 1,5.")
        for shot in self.shots:
            require_whole("shots", shot, 1, "1 and 5 are usual.")
        require_number("lr", self.lr, "positive", lambda v: v > 0, "Leave it out for the method's own.")
        require_number("weight_decay", self.weight_decay, "0 or more", lambda v: v >= 0, "Leave it out.")
        require_number("spread", self.spread, "above 0 and at most 1", lambda v: 0 < v <= 1, "1 leaves them alone.")

    @classmethod
    def of(cls, method: str, **changes: Any) -> MetaConfig:
        """The recipe of a method, with changes; those that are None are none."""
        recipe = trainable(method).recipe
        given = {name: value for name, value in changes.items() if value is not None}
        return cls(method, **asdict(recipe) | given)


@dataclass(frozen=True)
class Look:
    """What was seen at a look: steps until then, mean loss since the one before, accuracies on validation classes."""

    step: int
    loss: float
    accuracies: tuple[float, ...] | None
    best: bool


@dataclass
class _State:
    step: int = 0
    looks: list[dict[str, Any]] = field(default_factory=list)
    best: float = -math.inf
    best_head: dict[str, Tensor] = field(default_factory=dict)
    loss: float = 0.0


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
    progress: Callable[[int, Look | None], object] = lambda step, look: None,
) -> list[Look]:
    """Train a head on base classes, and write the one that is best on validation classes.

    Beside ``out`` there is a checkpoint while it runs: a run that was killed goes on from there when it is called
    again, to the same weights. One that is finished is not run again.

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
        Is given the steps done, and a look where one has just been taken.
    """
    out = _target(Path(out))
    identity = {
        "config": json.loads(json.dumps(asdict(config))),
        "base": _describe(base, "base"),
        "val": None if val is None else _describe(val, "val"),
    }
    if out.exists() and not force:
        about = read_weights(out).about
        if about.get("identity") != identity:
            raise WeightsFileError(
                f"{out} is of another run. Choose another name, or replace it with --force (in Python: force=True)."
            )
        return [_look(look) for look in about["looks"]]
    method = trainable(config.method)(seed=config.seed)
    run = _Run(config, method, base, val)
    state = run.restored(out, identity)
    began = time.perf_counter()
    run.loop(state, lambda: run.checkpoint(out, identity, state), progress)
    run.head.load_state_dict(state.best_head)
    about = {
        "method": config.method,
        "identity": identity,
        "looks": state.looks,
        "seconds": round(time.perf_counter() - began, 1),
    } | environment.stamp()
    write_weights(out, run.head, base.features.shape[1], config.ways, about)
    _checkpoint_path(out).unlink(missing_ok=True)
    return [_look(look) for look in state.looks]


class _Run:
    """A head, its optimiser, and where its episodes come from."""

    def __init__(self, config: MetaConfig, method: MetaMethod, base: FeatureSet, val: FeatureSet | None) -> None:
        self.config, self.method = config, method
        assert base.labels is not None
        self.labels = base.labels
        self.features = spread_classes(base.features.astype(np.float32), base.labels, config.spread)
        self.head = method.new_head(self.features.shape[1], config.ways)
        self.optimizer = _optimizer(self.head, config)
        self.validation = [] if val is None else self._validation(val)

    def loop(self, state: _State, save: Callable[[], None], progress: Callable[[int, Look | None], object]) -> None:
        """Take steps and looks until all are done."""
        steps = self.config.steps
        due = {math.ceil(steps * (i + 1) / self.config.looks) for i in range(self.config.looks)}
        while state.step < steps:
            state.loss += self.step(state.step)
            state.step += 1
            look = None
            if state.step in due:
                look = self.look(state, state.step - max((one["step"] for one in state.looks), default=0))
                save()
            progress(state.step, look)

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

    def look(self, state: _State, since: int) -> Look:
        """Look at validation classes, and keep the head if it is the best until now."""
        loss, state.loss = state.loss / since, 0.0
        if not math.isfinite(loss):
            raise A2LPError(f"the loss is {loss} after step {state.step}: training has diverged. Lower lr.")
        accuracies = tuple(self._accuracy(episode, targets) for episode, targets in self.validation) or None
        score = state.step if accuracies is None else sum(accuracies)
        best = score > state.best
        if best:
            state.best = score
            state.best_head = {name: tensor.clone() for name, tensor in self.head.state_dict().items()}
        look = Look(state.step, loss, accuracies, best)
        state.looks.append(asdict(look) | {"accuracies": None if accuracies is None else list(accuracies)})
        return look

    def checkpoint(self, out: Path, identity: dict[str, Any], state: _State) -> None:
        """Write where the run stands; the checkpoint before stays whole until this one is."""
        kept = {"head": self.head.state_dict(), "optimizer": self.optimizer.state_dict(), "state": vars(state)}
        with replacing(_checkpoint_path(out)) as temporary:
            torch.save(kept | {"identity": json.dumps(identity)}, temporary)

    def restored(self, out: Path, identity: dict[str, Any]) -> _State:
        """Where a run that was killed stood; the start, where there was none."""
        path = _checkpoint_path(out)
        if not path.exists():
            return _State()
        try:
            found = torch.load(path, weights_only=True)
            known = json.loads(found["identity"])
        except Exception as error:  # torch raises whatever it stumbles over
            raise WeightsFileError(
                f"{path} cannot be read as a checkpoint ({type(error).__name__}). Delete it to train from the start."
            ) from error
        if known != identity:
            raise WeightsFileError(
                f"{path} is of a run with other settings or features that was not finished. Run that one to its end, "
                "choose another name, or delete it."
            )
        self.head.load_state_dict(found["head"])
        self.optimizer.load_state_dict(found["optimizer"])
        return _State(**found["state"])

    def _validation(self, val: FeatureSet) -> list[tuple[Episode, Tensor]]:
        assert val.labels is not None
        found = []
        for shots in self.config.shots:
            tasks = self._draw(val.labels, shots, VALIDATION_TASKS, (_VALIDATION, shots))
            found.append((self._episode(tasks, val.features.astype(np.float32)), torch.from_numpy(tasks.query_labels)))
        return found

    def _accuracy(self, episode: Episode, targets: Tensor) -> float:
        """In percent, of the whole method."""
        right = 0.0
        with torch.no_grad():
            for part in chunks(len(targets), self.method.block):
                answer = self.method.answer(self.head, Episode(*(x[part] for x in episode)), targets.shape[1])
                right += float((answer.argmax(-1) == targets[part]).double().mean(1).sum())
        return 100 * right / len(targets)

    def _episode(self, tasks: TaskList, features: np.ndarray[Any, Any]) -> Episode:
        return as_episode(self.method._points(tasks.batch(features)))

    def _draw(self, labels: np.ndarray[Any, Any], shots: int, n_tasks: int, stream: tuple[int, int]) -> TaskList:
        # a function of seed and step alone: a run that goes on needs nothing of the past
        seed = int(np.random.SeedSequence((self.config.seed, *stream)).generate_state(1)[0])
        sizes = {"n_way": self.config.ways, "n_shot": shots, "n_query": self.config.queries, "n_tasks": n_tasks}
        return draw("balanced", labels, seed=seed, **sizes)


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


def _target(out: Path) -> Path:
    if out.suffix != SUFFIX:
        raise WeightsFileError(f"{out} has the extension {out.suffix!r}; trained heads are written as {SUFFIX}.")
    if not out.parent.is_dir():
        raise WeightsFileError(f"{out}: there is no directory {out.parent}. Create it first.")
    return out


def _checkpoint_path(out: Path) -> Path:
    return out.with_suffix(".checkpoint.pt")


def _describe(features: FeatureSet, part: str) -> str:
    """What tells these features from others."""
    if features.labels is None:
        raise InputError(f"{part}: {features.name!r} has no labels; training needs the class of each vector.")
    digest = hashlib.sha256(features.features.tobytes() + features.labels.tobytes()).hexdigest()
    n, d = features.features.shape
    return f"{features.name}: {n} x {d}, {features.n_classes} classes, sha256:{digest[:16]}"


def _look(known: dict[str, Any]) -> Look:
    accuracies = known["accuracies"]
    return Look(**known | {"accuracies": None if accuracies is None else tuple(accuracies)})

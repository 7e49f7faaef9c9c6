"""The configuration of a pre-training run, a JSON file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from a2lp.checks import require_name, shown
from a2lp.errors import InputError
from a2lp.files import TEXT_BYTES, parse_json, reading
from a2lp.images.normalisation import IMAGENET_MEAN, IMAGENET_STD, Triple
from a2lp.images.view import View

RECIPES: dict[str, dict[str, Any]] = {
    # S2M2, the defaults: manifold mixup on one part of the batch, four rotations of each image of the other part
    "s2m2": {},
    # SKD's first generation: every image in all four rotations, no mixup
    "rotations": {"batch": 0, "rotated": 64, "mixup": 0.0, "smoothing": 0.0, "rotation_weight": 1.0},
    # LR+ICI: cross-entropy alone, the learning rate divided by ten after each quarter
    "plain": {"batch": 64, "rotated": 0, "weight_decay": 1e-4, "schedule": "step", "warmup": 0}
    | dict.fromkeys(("mixup", "smoothing", "average"), 0.0),
}
# names of settings and entries in files of earlier versions
_FORMER_NAMES = {"looks": "evaluations", "look_tasks": "evaluation_tasks", "look_images": "evaluation_images"}

_OPTIONAL = ("dataset", "start", "teacher", "epochs", "minutes", "crop_area")  # None if they are not given
_MANY = 10**6
_RULES: tuple[tuple[tuple[str, ...], str, Callable[[Any], bool]], ...] = (
    (("evaluations", "evaluation_tasks"), "whole number from 1 to a million", lambda x: 1 <= x <= _MANY),
    (("batch", "rotated", "recalibrate"), "whole number from 0 to a million", lambda x: 0 <= x <= _MANY),
    (("evaluation_images",), "whole number from 20 to a million", lambda x: 20 <= x <= _MANY),
    (("warmup",), "whole number from 0 to a billion", lambda x: 0 <= x <= 10**9),
    (("shift",), "whole number from 0 to 10000", lambda x: 0 <= x <= 10**4),
    (("size",), "whole number from 1 to 10000", lambda x: 1 <= x <= 10**4),
    (("seed",), "whole number from 0 to 2**63 - 1", lambda x: 0 <= x < 2**63),
    (("epochs", "minutes"), "number above 0, at most a million", lambda x: 0 < x <= _MANY),
    (("lr", "distil_temperature"), "number above 0, below 1e38", lambda x: 0 < x < 1e38),
    (("stop", "momentum", "distil_weight"), "number above 0, at most 1", lambda x: 0 < x <= 1),
    (("smoothing", "jitter", "weight_decay"), "number of at least 0, below 1", lambda x: 0 <= x < 1),
    (("mixup", "rotation_weight", "checkpoint_seconds"), "number of at least 0, below 1e38", lambda x: 0 <= x < 1e38),
)


def current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a file by their current names."""
    return {_FORMER_NAMES.get(name, name): value for name, value in values.items()}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One pre-training run. ``of`` and ``read`` fill in the settings of the recipe."""

    name: str  # of the run in records
    backbone: str
    recipe: str  # "s2m2", "rotations" or "plain"
    kept: View  # the size of base images on the device, from which augmentation crops
    size: int  # the side of the network's input
    views: tuple[View, ...]  # candidates for embedding: evaluations use the first, the best is chosen at the end
    batch: int = 128  # images of a step that are shown upright
    rotated: int = 32  # further images, which are shown in all four rotations
    mixup: float = 2.0  # of the Beta distribution of manifold mixup; 0 for none
    weight_decay: float = 5e-4  # of parameters with two axes or more
    smoothing: float = 0.1  # of labels
    average: tuple[float, ...] = (0.999,)  # decays of averages of the weights; evaluations use the best one; 0 for none
    dataset: str | None = None  # a benchmark, whose standard splits are used instead of the data's own
    options: dict[str, Any] = field(default_factory=dict)  # of the network, such as {"stem_stride": 2}
    mean: Triple = IMAGENET_MEAN  # normalisation of pixels in 0..1
    std: Triple = IMAGENET_STD
    epochs: float | None = None  # the length: epochs, in which every base image is drawn once, or else minutes
    minutes: float | None = None
    stop: float = 1.0  # the part of the schedule to run: some are at their best long before the rate reaches zero
    rotation_weight: float = 0.5  # of the loss of rotations
    start: str | None = None  # weights of a trained network of the same backbone and options, to go on from
    teacher: str | None = None  # weights of a trained network, for distillation
    distil_weight: float = 0.5  # of the teacher's soft predictions in the loss of the classes
    distil_temperature: float = 4.0  # of these predictions
    lr: float = 0.1  # of SGD with Nesterov momentum
    momentum: float = 0.9
    warmup: int = 200  # steps
    schedule: str = "cosine"
    crop_area: tuple[float, float] | None = None  # range of random crops, as parts of the image's area
    crop_aspect: tuple[float, float] = (0.75, 4 / 3)  # and of their width over height
    shift: int = 0  # without crop_area, random shifts by so many pixels of the kept images
    jitter: float = 0.4  # strength of random colours
    evaluations: int = 20  # on validation classes
    evaluation_tasks: int = 1000  # of each evaluation
    evaluation_images: int = 300  # of each class at most
    recalibrate: int = 50  # batches for new batch norm statistics at an evaluation; the better of both is kept
    checkpoint_seconds: float = 60.0  # between checkpoints
    precision: str = "auto"  # "bfloat16", "float32", or "auto": the former on a GPU
    seed: int = 0  # of all random numbers

    @classmethod
    def of(cls, **settings: Any) -> TrainConfig:
        """A configuration from plain values: views as text, and the recipe's settings where none are given."""
        settings = current_names(settings)
        known = [each.name for each in fields(cls)]
        for name in settings:
            require_name("setting", name, known)
        recipe = settings.get("recipe", "s2m2")
        require_name("recipe", recipe, RECIPES)
        values = {"recipe": recipe} | RECIPES[recipe] | settings
        for name in ("name", "backbone", "kept", "size", "views"):
            if name not in values:
                raise InputError(f"a training configuration needs {name!r}. Add it; configs/ has examples.")
        values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        if not isinstance(average := values.get("average", cls.average), tuple):
            values["average"] = (average,)
        if not isinstance(values["views"], tuple) or not values["views"]:
            raise InputError(f'views={shown(values["views"])} must be a list of views, such as ["96/76/84"].')
        given = (values["kept"], *values["views"])
        kept, *views = (view if isinstance(view, View) else View.parse(view) for view in given)
        config = cls(**values | {"kept": kept, "views": tuple(views)})
        _check(config)
        return config

    @classmethod
    def read(cls, path: str | Path) -> TrainConfig:
        """A configuration from a JSON file."""
        expected = "a training configuration (JSON, as in configs/)"
        with reading(path, expected, most=TEXT_BYTES, error=InputError):
            settings = parse_json(Path(path).read_bytes(), "the file")
            if not isinstance(settings, dict):
                kind = type(settings).__name__
                raise InputError(f"it holds a {kind}; expected a JSON object. configs/ has examples.")
            return cls.of(**settings)

    def with_length(self, *, minutes: float | None = None, epochs: float | None = None) -> TrainConfig:
        """The same run with another length."""
        changed = replace(self, minutes=minutes, epochs=epochs)
        _check(changed)
        return changed

    def as_json(self) -> dict[str, Any]:
        """Every setting, as JSON can hold it."""
        average = self.average if len(self.average) > 1 else self.average[0]
        values = asdict(self) | {"kept": str(self.kept), "views": [*map(str, self.views)], "average": average}
        plain: dict[str, Any] = json.loads(json.dumps(values))
        return plain

    @property
    def drawn(self) -> int:
        """The number of base images in a step."""
        return self.batch + self.rotated

    @property
    def images_per_step(self) -> int:
        """The number of images that go through the network in a step."""
        return self.batch + 4 * self.rotated


def _check(config: TrainConfig) -> None:
    if (config.epochs is None) == (config.minutes is None):
        raise InputError(
            f"epochs={shown(config.epochs)} and minutes={shown(config.minutes)}: exactly one of them sets the length. "
            "Give one."
        )
    for name in ("name", "backbone", "dataset", "start", "teacher"):
        value = getattr(config, name)
        if not (isinstance(value, str) and value) and not (value is None and name in _OPTIONAL):
            raise InputError(f"{name}={shown(value)} must be a text that is not empty.")
    if not isinstance(config.options, dict):
        raise InputError(f'options={shown(config.options)} must be a JSON object, such as {{"stem_stride": 2}}.')
    for name in sorted({"name", "seed"} & config.options.keys()):
        raise InputError(f"options has {name!r}, which is a setting of the run itself. Give it beside options.")
    require_name("schedule", config.schedule, ("cosine", "step"))
    require_name("precision", config.precision, ("auto", "float32", "bfloat16"))
    given = {name: value for name, value in vars(config).items() if value is not None or name not in _OPTIONAL}
    for names, rule, holds in _RULES:
        kinds = int if rule.startswith("whole") else int | float
        for name in names:
            if name in given and not (_is_number(given[name], kinds) and holds(given[name])):
                raise InputError(f"{name}={shown(given[name])} must be a {rule}.")
    if config.drawn == 0:
        raise InputError("batch=0 and rotated=0: a step has no image. Raise one of them.")
    if config.mixup and not config.batch:
        raise InputError(
            f"mixup={config.mixup} mixes the upright images of a step, and batch=0. Raise batch, or set mixup=0."
        )
    for name, length in (("mean", 3), ("std", 3), ("crop_area", 2), ("crop_aspect", 2)):
        value, sign = getattr(config, name), "" if name == "mean" else "positive "
        if name in given and not (_are_numbers(value) and len(value) == length and (not sign or min(value) > 0)):
            raise InputError(f"{name}={shown(value)} must be {length} {sign}numbers.")
    if not _are_numbers(config.average) or not all(0 <= decay < 1 for decay in config.average):
        raise InputError(f"average={shown(list(config.average))} must be at least 0 and below 1, such as 0.999.")
    if config.crop_area is None and config.size > config.kept.output:
        raise InputError(
            f"size={config.size} is more than the {config.kept.output} pixels kept; without crop_area, windows of "
            "that size are cut from the kept images. Keep more pixels, or train at a smaller size."
        )


def _is_number(value: Any, kinds: Any = int | float) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and abs(value) < 1e300


def _are_numbers(values: Any) -> bool:
    return isinstance(values, tuple) and bool(values) and all(map(_is_number, values))

"""A run on its device: base images, network, optimizer, averaged weights, and the training step."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from a2lp.checks import shown
from a2lp.errors import InputError
from a2lp.files import reason
from a2lp.images.backbones.checkpoints import fill
from a2lp.images.backbones.networks import network
from a2lp.images.backbones.weight_files import read_weights
from a2lp.images.datasets import ImageSet
from a2lp.images.training.augment import Normalise, augment
from a2lp.images.training.config import TrainConfig
from a2lp.images.training.recipes import Batch, Classifier, Teacher, assemble, draw_mix, loss
from a2lp.images.training.validate import Validation
from a2lp.images.view import View
from a2lp.torch_files import check_like, restore_optimizer

_LOG = logging.getLogger(__name__)
_EPOCH, _STEP, _RECALIBRATION, _TEACHER = range(4)  # separate streams of random numbers
_TEACHER_BATCH = 512


class Average:
    """A copy of a network with the exponential average of its weights and batch norm statistics."""

    def __init__(self, net: Any, decay: float) -> None:
        self.net = copy.deepcopy(net).eval().requires_grad_(False)
        self.decay = decay
        self._source, self._own = (
            [value.detach() for value in each.state_dict(keep_vars=True).values() if value.is_floating_point()]
            for each in (net, self.net)
        )

    def update(self, step: int) -> None:
        """Update the average after step ``step`` (from 0)."""
        decay = min(self.decay, (1 + step) / (10 + step))  # lower at first, to forget the random initialisation
        torch._foreach_lerp_(self._own, self._source, 1 - decay)

    def state(self) -> dict[str, Tensor]:
        """A copy of weights and statistics."""
        return {name: value.clone() for name, value in self.net.state_dict().items()}


def recalibrate(net: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set batch norm's statistics to their plain mean over ``batches``."""
    norms = [module for module in net.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
        norm.train()
    with torch.no_grad():
        for x in batches:
            net(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


class Run:
    """The part of a run that is on the device; ``workers`` threads decode the images.

    ``step`` never waits for the device: no value is read back, and random numbers are drawn there. They depend on the
    seed and the step alone, so a run that continues after a kill draws the same ones.
    """

    def __init__(
        self, config: TrainConfig, base: ImageSet, val: ImageSet | None, device: torch.device, workers: int
    ) -> None:
        if base.labels is None:
            raise InputError(f"{base.name!r} has no labels; training needs the class of each image.")
        if len(base) < config.drawn:
            raise InputError(
                f"{base.name!r} has {len(base)} images and a step draws {config.drawn}. Lower batch or rotated."
            )
        self.config, self.device = config, device
        self.generator = torch.Generator(device)
        self.steps_per_epoch = len(base) // config.drawn
        self._order = (-1, torch.empty(0))
        classes, labels = np.unique(base.labels, return_inverse=True)
        net: Any = network(config.backbone, seed=config.seed, **config.options)
        if config.start is not None:
            saved = read_weights(config.start)
            saved.check_backbone(config.backbone)
            fill(net, saved)
        _try_sizes(net, config)
        self.model = Classifier(net, len(classes)).to(device, memory_format=torch.channels_last)
        self.averages = [Average(net, decay) for decay in config.average]
        parameters = list(self.model.parameters())
        decayed = {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay}
        others = {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}
        settings = {"lr": config.lr, "momentum": config.momentum, "fused": device.type == "cuda"}
        self.optimizer = torch.optim.SGD([decayed, others], nesterov=True, **settings)
        self.normalise = Normalise(config, device)
        self.validation = None if val is None else Validation(val, config, device, workers)
        self.pixels = torch.from_numpy(base.pixels(config.kept, workers)).to(device)
        self.labels = torch.from_numpy(labels.astype(np.int64)).to(device)
        self.loss_sum = torch.zeros((), device=device)
        self.teacher = None
        if config.teacher is not None:  # with class means over all base images, augmented once
            self._seed(_TEACHER, 0)
            rows = torch.arange(len(self.labels), device=self.device).split(_TEACHER_BATCH)
            images = (self.normalise(augment(self.pixels[some], self.config, self.generator)) for some in rows)
            labelled = zip(images, (self.labels[some] for some in rows), strict=True)
            self.teacher = Teacher(config, labelled, len(classes))
            if len(self.teacher.stages) != len(self.model.stages):  # examples are mixed before the same stage of both
                raise InputError(
                    f"teacher={shown(config.teacher)} has {len(self.teacher.stages)} stages and {config.backbone} has "
                    f"{len(self.model.stages)}; both must have as many. Choose another teacher."
                )
        self.bfloat16 = config.precision == "bfloat16" or (config.precision == "auto" and device.type == "cuda")

    def step(self, step: int, lr: float) -> None:
        """Take step ``step`` (from 0)."""
        value = self._loss(self._batch(step))
        value.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for average in self.averages:
            average.update(step)
        self.loss_sum += value.detach()

    def compile(self) -> str:
        """Compile the stages and run them once, before training time counts; return a note for the record."""
        if self.device.type != "cuda":
            return "not compiled: no GPU"
        before = [buffer.clone() for buffer in self.model.buffers()]
        trunks = [self.model] if self.teacher is None else [self.model, self.teacher]
        for trunk in trunks:
            # not dynamic: stages share their code, and the shapes of one must not make those of another variable
            trunk.stages = [torch.compile(stage, dynamic=False) for stage in trunk.stages]
        note = "compiled"
        try:
            self._warm_up()
        except Exception as error:  # of the compiler, the C++ compiler, or the cache
            note = f"not compiled: {reason(error)}"
            _LOG.warning("%s; training continues without, a fifth slower", note)
            for trunk in trunks:
                trunk.stages = list(trunk.net.stages)
            self._warm_up()
        for buffer, value in zip(self.model.buffers(), before, strict=True):
            buffer.copy_(value)
        return note

    def candidates(self, step: int) -> Iterator[tuple[tuple[float, float], float, str, dict[str, Tensor]]]:
        """Accuracies, decay, batch norm and weights of each average, with averaged and recalibrated batch norm."""
        view = self.config.views[0]
        for average in self.averages:
            averaged = average.state()
            yield self.accuracy(average.net, view), average.decay, "averaged", averaged
            if self.config.recalibrate:
                with self._autocast():
                    recalibrate(average.net, self._plain_batches(step))
                yield self.accuracy(average.net, view), average.decay, "recalibrated", average.state()
                average.net.load_state_dict(averaged)

    def accuracy(self, net: nn.Module, view: View) -> tuple[float, float]:
        """Accuracy of a network on validation classes, in percent, at one shot and at five."""
        assert self.validation is not None
        with self._autocast():
            return self.validation.accuracy(net, view)

    def tensors(self) -> dict[str, Any]:
        """The tensors of a checkpoint."""
        return {
            "model": self.model.state_dict(),
            "averages": [average.net.state_dict() for average in self.averages],
            "optimizer": self.optimizer.state_dict(),
            "loss_sum": self.loss_sum,
        }

    def restore(self, tensors: dict[str, Any]) -> None:
        """Continue from the tensors of a checkpoint; InputError if they are not of this run."""
        check_like(tensors, self.tensors() | {"optimizer": dict}, "tensors")
        restore_optimizer(self.optimizer, tensors["optimizer"])
        self.model.load_state_dict(tensors["model"])
        for average, state in zip(self.averages, tensors["averages"], strict=True):
            average.net.load_state_dict(state)
        self.loss_sum.copy_(tensors["loss_sum"])

    def _batch(self, step: int) -> Batch:
        """The next images in the random order of an epoch; a remainder at its end is not drawn."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._seed(_EPOCH, epoch)
            self._order = (epoch, torch.rand(len(self.labels), device=self.device, generator=self.generator).argsort())
        rows = self._order[1][place * self.config.drawn : (place + 1) * self.config.drawn]
        self._seed(_STEP, step)
        images = self.normalise(augment(self.pixels[rows], self.config, self.generator))
        mix = draw_mix(self.config, step, len(self.model.stages))
        return assemble(images, self.labels[rows], self.config, mix)

    def _plain_batches(self, step: int) -> Iterator[Tensor]:
        """Augmented images, neither mixed nor rotated."""
        self._seed(_RECALIBRATION, step)
        size = (max(self.config.batch, self.config.rotated),)
        for _ in range(self.config.recalibrate):
            rows = torch.randint(len(self.labels), size, device=self.device, generator=self.generator)
            yield self.normalise(augment(self.pixels[rows], self.config, self.generator))

    def _loss(self, batch: Batch) -> Tensor:
        with self._autocast():
            soft = None
            if self.teacher is not None:
                with torch.no_grad():
                    soft = self.teacher.logits(batch.images, batch.mix)
            return loss(self.model, batch, self.config, soft)

    def _warm_up(self) -> None:
        batch = self._batch(0)
        for stage in range(len(self.model.stages)):
            mix = None if batch.mix is None else replace(batch.mix, stage=stage)
            self._loss(replace(batch, mix=mix)).backward()
            self.optimizer.zero_grad(set_to_none=True)
        if self.validation is not None:
            for _ in self.candidates(0):  # compiles its shapes too, and fails before hours of training, if at all
                pass
        torch.cuda.synchronize(self.device)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bfloat16)

    def _seed(self, stream: int, position: int) -> None:
        entropy = np.random.SeedSequence((self.config.seed, stream, position)).generate_state(1, np.uint64)
        seed = int(entropy[0] >> np.uint64(1))
        self.generator.manual_seed(seed)
        torch.manual_seed(seed)  # of dropout, which takes no generator


def _try_sizes(net: nn.Module, config: TrainConfig) -> None:
    """Try every input size on a copy of the network, so that one it cannot take is refused before training."""
    tried = copy.deepcopy(net)
    sizes = {"size": config.size} | {f"view {view}": view.output for view in config.views}
    for what, side in sizes.items():
        tried.train(what == "size")
        try:
            with torch.no_grad():
                tried(torch.zeros(2, 3, side, side))
        except (RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"{config.backbone} with options={shown(config.options)} cannot take {what}, {side} x {side} pixels "
                f"({reason(error)}). Choose another size, or other options."
            ) from error

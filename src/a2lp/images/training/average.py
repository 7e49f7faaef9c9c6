"""An exponential average of a network's weights, and batch norm statistics recomputed for it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

State = dict[str, Tensor]


class Average:
    """A copy of a network that follows it slowly; batch norm's statistics follow too.

    Parameters
    ----------
    net : Module
        The network that is trained.
    decay : float
        How much of the average stays at each step; less in the first steps, so that the random start is forgotten.
    """

    def __init__(self, net: Any, decay: float) -> None:
        self.net = copy.deepcopy(net).eval().requires_grad_(False)
        self.decay = decay
        self._source, self._own = (_floats(each) for each in (net, self.net))

    def update(self, step: int) -> None:
        """Move towards the network, after step ``step`` (from 0)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._own, self._source, 1 - decay)

    def state(self) -> State:
        """A copy of weights and statistics."""
        return {name: value.clone() for name, value in self.net.state_dict().items()}


def recalibrate(net: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set batch norm's statistics to their plain mean over ``batches``."""
    norms = [module for module in net.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # which makes it the mean over all batches
        norm.train()
    with torch.no_grad():
        for x in batches:
            net(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _floats(net: nn.Module) -> list[Tensor]:
    return [value.detach() for value in net.state_dict(keep_vars=True).values() if value.is_floating_point()]

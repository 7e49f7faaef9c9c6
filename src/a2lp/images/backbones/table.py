"""The names of all backbones. Networks of torch are imported when one is made."""

from __future__ import annotations

TIMM = "timm:"
OPEN_CLIP = "open_clip:"
ONNX = "onnx:"
DEFAULT = "efficientnet_lite0"

# a name: the function that makes the network, and one line about it
NETWORKS: dict[str, tuple[str, str]] = {
    "resnet12": ("resnet:resnet12", "ResNet-12, 640 features, as few-shot papers use it; train it, or give weights"),
    "resnet12_512": ("resnet:resnet12_512", "LR+ICI's ResNet-12, 512 features; train it, or give weights"),
    "wrn28_10": ("resnet:WideResNet", "WideResNet-28-10, 640 features, as in S2M2; train it, or give weights"),
    DEFAULT: ("pretrained:efficientnet_lite0", "EfficientNet-Lite0, 1280 features, trained on ImageNet; included"),
}
# prefixes of models of other packages: the function that makes one from its name, and an example
PACKAGES = {
    TIMM: ("pretrained:from_timm", "a timm model, such as 'timm:resnet18'"),
    OPEN_CLIP: ("clip:from_open_clip", "an open_clip model, such as 'open_clip:ViT-B-32'"),
}


def names() -> dict[str, str]:
    """The names of all backbones, each with one line about it."""
    lines = {name: line for name, (_, line) in NETWORKS.items()}
    lines[f"{ONNX}<file>"] = "any network in an ONNX file of yours, from images to vectors; needs no torch"
    return lines | {
        f"{TIMM}<name>": "any model of the package timm, with timm's weights or your own",
        f"{OPEN_CLIP}<name>": "a vision-language model of the package open_clip; give weights",
    }

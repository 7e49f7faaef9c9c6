"""Vision-language models of the package open_clip: an image encoder, and a text encoder for the names of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from a2lp.errors import InputError, did_you_mean
from a2lp.files import reason
from a2lp.images.backbones.base import Network, Wrapped, import_models
from a2lp.images.view import View


class OpenClip(Wrapped):
    """The image encoder; ``core`` is the whole model, so that one file of weights has both encoders."""

    def __init__(self, body: nn.Module, tokenizer: Any) -> None:
        super().__init__(body)
        self.tokenizer = tokenizer

    @property
    def stages(self) -> Sequence[nn.Module]:
        """The image encoder."""
        return [self.body.visual]

    def pool(self, x: Any) -> Tensor:
        """The vector; some encoders give the tokens beside it."""
        features: Tensor = x[0] if isinstance(x, tuple) else x
        return features


def from_open_clip(model: str) -> Network:
    """A model of open_clip with random weights; nothing is downloaded."""
    package = import_models(f"open_clip:{model}", "clip", "open_clip")
    config = package.get_model_config(model)
    if config is None:
        hint = did_you_mean(model, package.list_models())
        raise InputError(f"open_clip has no model {model!r}. {hint}open_clip.list_models() gives all names.")
    text = config.get("text_cfg", {})
    if elsewhere := text.get("hf_model_name") or text.get("hf_tokenizer_name"):
        raise InputError(
            f"the text encoder of {model!r} needs files that open_clip would download ({elsewhere}), and nothing is "
            "downloaded here. Embed images and names yourself, and give the vectors: classify the file of the images' "
            "vectors with --text FILE."
        )
    try:
        body = package.create_model(model, load_weights=False)
        tokenizer = package.get_tokenizer(model)
    except Exception as error:  # the model's own code can raise almost anything
        raise InputError(f"open_clip cannot make {model!r} ({reason(error)}). Choose another model.") from error
    net = OpenClip(body, tokenizer)
    size = config["vision_cfg"]["image_size"]
    side = min(size) if isinstance(size, list | tuple) else size
    net.view = View(side, side)
    net.mean, net.std = tuple(body.visual.image_mean), tuple(body.visual.image_std)
    net.dim = int(config["embed_dim"])
    return net

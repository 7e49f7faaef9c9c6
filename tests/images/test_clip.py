"""open_clip's models as backbones: names of classes become vectors in the space of the images'."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from a2lp.cli.app import app
from a2lp.errors import InputError, MissingExtraError
from a2lp.images import backbones
from a2lp.images.text import PROMPTS, encode_names

try:
    import open_clip
except Exception:  # not installed, or beside a torchvision of another torch
    open_clip = None

needs_open_clip = pytest.mark.skipif(open_clip is None, reason="open_clip cannot be imported")
TINY: dict[str, Any] = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """A small model with random weights, which are in ``weights.safetensors``; the current folder is empty else."""
    from safetensors.torch import save_file

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A2LP_CACHE", str(tmp_path / "cache"))
    Path("a2lp-tiny.json").write_text(json.dumps(TINY))
    open_clip.add_model_config("a2lp-tiny.json")
    torch.manual_seed(0)
    model = open_clip.create_model("a2lp-tiny", load_weights=False).eval()
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, "weights.safetensors")
    return model, "weights.safetensors"


@needs_open_clip
def test_names_are_the_mean_of_their_prompts(tiny: tuple[Any, str]) -> None:
    model, weights = tiny
    names = ["baseball field", "parking_lot"]
    found = encode_names(names, "open_clip:a2lp-tiny", weights, "cpu")
    tokenizer = open_clip.get_tokenizer("a2lp-tiny")
    for row, name in zip(found, ["baseball field", "parking lot"], strict=True):
        with torch.inference_mode():
            each = [model.encode_text(tokenizer([prompt.replace("{}", name)]))[0].numpy() for prompt in PROMPTS]
        mean = np.mean([vector / np.linalg.norm(vector) for vector in each], axis=0)
        np.testing.assert_allclose(row, mean / np.linalg.norm(mean), atol=1e-5)
    other = encode_names(names, "open_clip:a2lp-tiny", weights, "cpu", ["an aerial photo of {}."])
    assert np.abs(other - found).max() > 1e-3
    with pytest.raises(InputError, match="for the name"):
        encode_names(names, "open_clip:a2lp-tiny", weights, "cpu", ["a photo"])


@needs_open_clip
def test_images_are_those_of_open_clip(tiny: tuple[Any, str]) -> None:
    model, weights = tiny
    made = backbones.create("open_clip:a2lp-tiny", weights)
    assert (made.dim, str(made.view)) == (24, "32/32")
    pixels = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(made.module(pixels), model.encode_image(pixels))


@needs_open_clip
@pytest.mark.usefixtures("tiny")
def test_the_command_from_images_and_names() -> None:
    image: Any = pytest.importorskip("PIL.Image")
    Path("photos").mkdir()
    rng = np.random.default_rng(0)
    for i in range(12):
        pixels = np.clip(120 * (i % 2) + rng.normal(60, 20, (40, 40, 3)), 0, 255)
        image.fromarray(pixels.astype(np.uint8)).save(f"photos/{i:02d}.png")
    Path("names.txt").write_text("day\nnight\n")
    options = ("--backbone", "open_clip:a2lp-tiny", "--weights", "weights.safetensors", "--device", "cpu")
    named = ("photos", "--names", "names.txt", *options, "--prompt", "a {} photo")
    result = CliRunner().invoke(app, ["classify", *named, "--out", "out.csv"])
    assert result.exit_code == 0, result.stderr
    with Path("out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert {row["label"] for row in rows} <= {"day", "night"}
    assert "--prompt 'a {} photo'" in result.stdout  # the next command has it, too
    wrong = CliRunner().invoke(app, ["classify", *named[:-1], "a photo", "--out", "other.csv"])
    assert wrong.exit_code == 2
    assert "has no {} for the name" in " ".join(wrong.stderr.split())


@needs_open_clip
def test_models_that_would_be_downloaded_or_do_not_exist() -> None:
    with pytest.raises(InputError, match="nothing is downloaded here"):
        backbones.network("open_clip:ViT-B-16-SigLIP")
    with pytest.raises(InputError, match="Did you mean 'ViT-B-32'"):
        backbones.network("open_clip:ViT-B-321")
    with pytest.raises(InputError, match="comes without weights"):
        backbones.create("open_clip:ViT-B-32")


def test_names_that_are_missing() -> None:
    with pytest.raises(InputError, match="'open_clip:' needs the name of an open_clip model"):
        backbones.network("open_clip:")
    if open_clip is None:
        with pytest.raises((MissingExtraError, InputError), match=r"\[clip\]|cannot be imported"):
            backbones.network("open_clip:ViT-B-32")

"""Checkpoints as papers published them, written here key by key, and our own; none of them may run anything."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from a2lp.errors import InputError, WeightsFileError
from a2lp.images import View, backbones
from a2lp.images.backbones import create, load_weights, network, save_weights
from a2lp.images.backbones.weight_files import read_weights

from .test_backbones import images, resnet12_features, wrn_features

State = OrderedDict[str, Tensor]
FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])


def norm(state: State, key: str, n: int, counter: bool = True) -> None:
    for part in ("weight", "bias", "running_mean", "running_var"):
        state[f"{key}.{part}"] = torch.rand(n) + (0.5 if part.endswith(("weight", "var")) else 0)
    if counter:
        state[f"{key}.num_batches_tracked"] = torch.tensor(7)


def convolution(state: State, key: str, n_in: int, n_out: int, size: int) -> None:
    state[f"{key}.weight"] = torch.randn(n_out, n_in, size, size) * (2 / (size**2 * n_out)) ** 0.5


@pytest.fixture(scope="module")
def res12() -> State:
    """The keys of LR+ICI's res12_*.pth.tar, without the classifier."""
    torch.manual_seed(0)
    state: State = OrderedDict()
    n_in = 3
    for layer, n in enumerate((64, 128, 256, 512), start=1):
        for i in (1, 2, 3):
            convolution(state, f"layer{layer}.0.conv{i}", n_in if i == 1 else n, n, 3)
            norm(state, f"layer{layer}.0.bn{i}", n)
        convolution(state, f"layer{layer}.0.downsample.0", n_in, n, 1)
        norm(state, f"layer{layer}.0.downsample.1", n)
        n_in = n
    return state


@pytest.fixture(scope="module")
def wrn() -> State:
    """The keys of S2M2's network, without the classifier."""
    torch.manual_seed(0)
    state: State = OrderedDict()
    convolution(state, "conv1", 3, 16, 3)
    n_in = 16
    for block, n in enumerate((160, 320, 640), start=1):
        for unit in range(4):
            key = f"block{block}.layer.{unit}"
            norm(state, f"{key}.bn1", n_in, counter=False)  # as torch before 0.4.1 wrote them
            convolution(state, f"{key}.conv1", n_in, n, 3)
            norm(state, f"{key}.bn2", n, counter=False)
            convolution(state, f"{key}.conv2", n, n, 3)
            if unit == 0:
                convolution(state, f"{key}.convShortcut", n_in, n, 1)
            n_in = n
    norm(state, "bn1", 640, counter=False)
    return state


def prefixed(prefix: str, state: State) -> State:
    return OrderedDict((prefix + key, value) for key, value in state.items())


def write(path: Path, content: Any, zipped: bool = True) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    return path


@FORMATS
def test_lr_ici_is_a_bare_state_dict(tmp_path: Path, res12: State, zipped: bool) -> None:
    head = {"fc.weight": torch.zeros(64, 512), "fc.bias": torch.zeros(64)}
    path = write(tmp_path / "res12_mini.pth.tar", OrderedDict(res12 | head), zipped)
    found = create("resnet12_512", path)
    x = images(20)
    with torch.inference_mode():
        torch.testing.assert_close(found.module(x), resnet12_features(res12, x), rtol=1e-4, atol=1e-5)
    assert found.view == View(84, 84)
    net = network("resnet12_512")
    load_weights(net, path)
    assert net.weights == found.weights
    assert all(torch.equal(net.state_dict()[key], value) for key, value in res12.items())


@FORMATS
def test_the_second_version_of_lr_ici_wraps_and_rounds_up(tmp_path: Path, res12: State, zipped: bool) -> None:
    state = prefixed("base.", res12)
    state |= {"clasifier.weight": torch.zeros(64, 512, 1, 1), "clasifier.bias": torch.zeros(64)}
    path = write(tmp_path / "best_model.tar", {"state_dict": state, "acc": np.float64(0.62), "epoch": 80}, zipped)
    x = images(20)
    with torch.inference_mode():
        expected = resnet12_features(res12, x, ceil=True)
        torch.testing.assert_close(create("resnet12_512", path).module(x), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(WeightsFileError, match="with ceil_pool=True; this one was made with False"):
        load_weights(network("resnet12_512"), path)
    with pytest.raises(WeightsFileError, match="holds weights of backbone 'resnet12_512', not of 'wrn28_10'"):
        create("wrn28_10", path)


@pytest.mark.parametrize(("prefix", "zipped"), [("module.", False), ("", True), ("module.feature.", True)])
def test_s2m2_has_state_and_the_prefix_of_several_gpus(tmp_path: Path, wrn: State, prefix: str, zipped: bool) -> None:
    state = prefixed(prefix, wrn)
    outer = prefix.removesuffix("feature.")
    heads = (
        "linear.L.weight_g",
        "linear.L.weight_v",
        "classifier.L.weight_g",
        "classifier.L.weight_v",
        "rotate.weight",
    )
    state |= {outer + head: torch.zeros(2, 2) for head in heads}
    content = {"epoch": 399, "state": state, "rotate": {"0.weight": torch.zeros(4, 640), "0.bias": torch.zeros(4)}}
    found = create("wrn28_10", write(tmp_path / "399.tar", content, zipped))
    x = images(16, 1)
    with torch.inference_mode():
        torch.testing.assert_close(found.module(x), wrn_features(wrn, x), rtol=1e-4, atol=1e-5)
    assert found.view == View(92, 80)


def test_saved_weights_restore_everything(tmp_path: Path) -> None:
    net = network("wrn28_10", stem_stride=2, seed=5).eval()
    with torch.no_grad():
        net.bn1.running_var.fill_(1e5)  # more than float16 can hold
    path = tmp_path / "wrn.safetensors"
    colours = {"mean": (0.5, 0.4, 0.3), "std": (0.25, 0.2, 0.125)}
    files = save_weights(net, path, about={"recipe": "s2m2"}, view=View(96, 76, 84), **colours, max_bytes=30 << 20)
    assert [file.name for file in files] == [f"wrn-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    assert max(file.stat().st_size for file in files) < (30 << 20) + (1 << 16)
    assert sorted(tmp_path.iterdir()) == sorted(files)
    for name in (path, tmp_path / "wrn", files[0], files[2]):
        found = create("wrn28_10", name)
        assert (found.view, {"mean": found.mean, "std": found.std}) == (View(96, 76, 84), colours)
    x = images(16)
    with torch.inference_mode():
        torch.testing.assert_close(found.module(x), net(x), rtol=2e-3, atol=2e-3)
    again = network("wrn28_10", stem_stride=2)
    load_weights(again, path)
    assert again.weights == found.weights
    assert read_weights(path).about["recipe"] == "s2m2"
    with pytest.raises(WeightsFileError, match="with stem_stride=2; this one was made with 1"):
        load_weights(network("wrn28_10"), path)
    with pytest.raises(
        WeightsFileError, match=r"of backbone 'wrn28_10', not of 'resnet12'\. Ask for backbone 'wrn28_10'"
    ):
        create("resnet12", path)


def test_full_precision_is_lossless_and_files_are_reproducible(tmp_path: Path) -> None:
    net = network("resnet12_512", seed=1, dropout=0.1).to(memory_format=torch.channels_last)
    (first,) = save_weights(net, tmp_path / "a.safetensors", about={}, half=False, max_bytes=1 << 30)
    (second,) = save_weights(net, tmp_path / "b.safetensors", about={}, half=False, max_bytes=1 << 30)
    assert first.read_bytes() == second.read_bytes()
    restored = create("resnet12_512", first)
    assert restored.view == View(84, 84)
    for key, value in restored.module.state_dict().items():
        assert torch.equal(value, net.state_dict()[key]), key
    assert first.stat().st_mode & 0o777 == 0o666 & ~_umask()
    half = save_weights(net, tmp_path / "c.safetensors", about={}, max_bytes=1 << 30)[0].stat().st_size
    assert half < 0.51 * first.stat().st_size


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_shards_that_do_not_belong_together(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    old = save_weights(network("resnet12_512", seed=1), path, about={}, max_bytes=12 << 20)
    kept = old[1].read_bytes()
    files = save_weights(network("resnet12_512", seed=2), path, about={}, max_bytes=12 << 20)
    assert len(files) == 2
    fresh = files[1].read_bytes()
    files[1].write_bytes(kept)  # as a saving that was killed between the two leaves them
    with pytest.raises(WeightsFileError, match="were not saved together"):
        create("resnet12_512", path)
    files[1].unlink()
    with pytest.raises(WeightsFileError, match=r"has 2 shards, and `w-00002-of-00002.safetensors` cannot be found"):
        create("resnet12_512", path)
    files[1].write_bytes(fresh)
    (tmp_path / "w-00001-of-00004.safetensors").write_bytes(fresh)
    with pytest.raises(WeightsFileError, match=r"was saved in 2 and 4 shards\. Name the first shard"):
        create("resnet12_512", path)
    assert create("resnet12_512", files[0]).weights


def test_earlier_files_of_the_same_name_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    other = tmp_path / "w-2.safetensors"
    other.write_bytes(b"of another network")
    for seed, max_bytes, n in ((1, 12 << 20, 2), (2, 1 << 30, 1), (3, 5 << 20, 4), (4, 12 << 20, 2)):
        net = network("resnet12_512", seed=seed)
        files = save_weights(net, path, about={}, half=True, max_bytes=max_bytes)
        assert len(files) == n
        assert set(tmp_path.iterdir()) == {*files, other}
        found = create("resnet12_512", path).module.layer4[0].conv3.weight
        assert torch.equal(found, net.layer4[0].conv3.weight.half().float())


class Evil:
    """A pickle of this runs a command when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("writer", ["zip", "before torch 1.6", "plain pickle"])
@pytest.mark.parametrize("place", ["whole", "beside", "inside"])
def test_a_checkpoint_that_carries_code_is_refused_and_does_not_run(tmp_path: Path, writer: str, place: str) -> None:
    marker = tmp_path / "it-ran"
    evil = Evil(marker)
    contents = {
        "whole": evil,
        "beside": {"state_dict": {"fc.bias": torch.zeros(3)}, "acc": evil},
        "inside": {"layer1": evil},
    }
    path = tmp_path / "res12_cub.pth.tar"
    if writer == "plain pickle":
        path.write_bytes(pickle.dumps(contents[place], 2))
    else:
        write(path, contents[place], writer == "zip")
    with pytest.raises(
        WeightsFileError,
        match=r"refused: it asks for ((posix|nt)\.system|torch\.storage\._load_from_bytes).*carries code",
    ):
        create("resnet12_512", path)
    assert not marker.exists()
    if writer == "plain pickle":
        pickle.loads(path.read_bytes())
        assert marker.exists()  # it would have


def test_keys_that_do_not_fit_are_named(tmp_path: Path, res12: State) -> None:
    state = OrderedDict(res12)
    del state["layer2.0.conv1.weight"]
    state["cam.conv1.weight"] = torch.zeros(1)
    state["layer1.0.conv1.weight"] = torch.zeros(32, 3, 3, 3)
    path = write(tmp_path / "odd.pth", state)
    with pytest.raises(WeightsFileError) as raised:
        create("resnet12_512", path)
    message = str(raised.value)
    assert "1 missing: `layer2.0.conv1.weight`" in message
    assert "1 unexpected: `cam.conv1.weight`" in message
    assert "`layer1.0.conv1.weight: (32, 3, 3, 3), not (64, 3, 3, 3)`" in message

    with pytest.raises(WeightsFileError, match=r"\d+ missing: `block1[^`]*`, .* and \d+ more; \d+ unexpected: `cam\."):
        create("wrn28_10", path)
    twice = write(tmp_path / "two.pth", res12 | prefixed("module.", res12))
    with pytest.raises(WeightsFileError, match=r"two tensors for 'layer1\.0\.conv1.weight'"):
        create("resnet12_512", twice)


def test_files_that_are_not_weights(tmp_path: Path, res12: State) -> None:
    whole = write(tmp_path / "whole.pth", res12).read_bytes()
    good = save_weights(network("resnet12_512"), tmp_path / "good.safetensors", about={}, max_bytes=1 << 30)[0]
    cases: dict[str, bytes] = {
        "empty.pth": b"",
        "text.pth.tar": b"not a checkpoint",
        "cut.pth": whole[: len(whole) // 2],
        "cut.safetensors": good.read_bytes()[:5000],
        "empty.safetensors": b"",
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(WeightsFileError, match=rf"{name} cannot be read as a .* Fetch or make it again"):
            create("resnet12_512", tmp_path / name)
    for content, found in (([1], "a list"), ({"epoch": 3}, "a dict of `epoch`"), ({}, "a dict of nothing")):
        with pytest.raises(WeightsFileError, match=f"expected a state dict .* found {found}"):
            create("resnet12_512", write(tmp_path / "other.pth", content))
    with pytest.raises(WeightsFileError, match=r"absent\.pth does not exist; expected a file of weights"):
        create("resnet12_512", tmp_path / "absent.pth")
    with pytest.raises(WeightsFileError, match="is a folder; expected a file of weights"):
        create("resnet12_512", tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("view", "84"),
        ("view", "84/96"),
        ("mean", "[1, 2]"),
        ("mean", f"[{'9' * 400}, 1, 1]"),
        ("std", '"abc"'),
        ("std", "[0, 1, 1]"),
        ("options", "[]"),
        ("options", "{"),
        ("options", "[" * 5000),
        ("options", '{"name": "resnet12"}'),
        ("options", '{"dropout": []}'),
        ("options", '{"ceil_pool": "yes"}'),
        ("options", '{"depth": 12}'),
    ],
)
def test_metadata_that_cannot_be_used(tmp_path: Path, key: str, value: str) -> None:
    import safetensors.torch

    net = network("resnet12_512")
    path = tmp_path / "w.safetensors"
    tensors = {name: tensor for name, tensor in net.state_dict().items() if tensor.ndim}
    safetensors.torch.save_file(tensors, path, {key: value})
    with pytest.raises(WeightsFileError, match=f"its metadata has {key} = "):
        create("resnet12_512", path)
    safetensors.torch.save_file(tensors, path)  # other safetensors files have no metadata
    assert backbones.create("resnet12_512", path).view == View(84, 84)


def test_weights_that_cannot_be_saved(tmp_path: Path) -> None:
    net = network("resnet12_512")
    with pytest.raises(WeightsFileError, match=r"w\.pth must end in \.safetensors"):
        save_weights(net, tmp_path / "w.pth", about={})
    with pytest.raises(InputError, match="about has `view`, which save_weights writes itself"):
        save_weights(net, tmp_path / "w.safetensors", about={"view": "84/84"})
    with pytest.raises(WeightsFileError, match=r"cannot be written \(No such file or directory\)"):
        save_weights(net, tmp_path / "none" / "w.safetensors", about={})

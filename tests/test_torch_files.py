"""Checkpoints that would fill the memory, end the interpreter, or hold something else than they should."""

from __future__ import annotations

import copy
import io
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from a2lp.errors import InputError, WeightsFileError
from a2lp.torch_files import check_like, read_checkpoint, restore_optimizer, write_checkpoint

CONTENT = {
    "state_dict": OrderedDict(weight=torch.arange(6.0).reshape(2, 3), half=torch.ones(2).half()),
    "acc": np.float64(0.5),
    "epoch": np.int64(3),
    "args": [1, 2.5, None, "x", (True, {"a": 1})],
}


def read(path: Path) -> Any:
    return read_checkpoint(path, "a checkpoint", "Make it again.")


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])
def test_a_checkpoint_round_trip(tmp_path: Path, zipped: bool) -> None:
    torch.save(CONTENT, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    found = read(tmp_path / "x.pt")
    assert list(found) == list(CONTENT)
    for key, value in CONTENT["state_dict"].items():
        assert torch.equal(found["state_dict"][key], value)
    assert (found["acc"], found["epoch"], found["args"]) == (0.5, 3, CONTENT["args"])
    write_checkpoint(tmp_path / "y.pt", found)
    assert read(tmp_path / "y.pt")["args"] == CONTENT["args"]


def zipped(pickled: bytes, how: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for name, content in {"data.pkl": pickled, "version": b"3\n", "byteorder": b"little"}.items():
            archive.writestr(f"x/{name}", content)
        for name, content in members.items():
            archive.writestr(f"x/data/{name.removeprefix('_')}", content)
    return buffer.getvalue()


def tower(levels: int) -> bytes:
    """A tuple of the tuple before twice, on so many levels."""
    return b"K\x01" + b"2\x86" * levels


# a number of 2 GiB: NumPy's own dtype of that size, and no bytes for it
SCALAR = b"\x80\x02cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\x0b\x00\x00\x00V2147483647\x85R\x85R."
HOSTILE = {
    "a number of 2 GiB": zipped(SCALAR),
    "the same before torch 1.6": SCALAR,
    "a key that is hashed for hours": zipped(b"\x80\x02}" + tower(60) + b"K\x01s."),
    "the same before torch 1.6 ": b"\x80\x02}" + tower(60) + b"K\x01s.",
    "a key too deep for the interpreter": zipped(b"\x80\x02})" + b"\x85" * 3_000_000 + b"K\x01s."),
    "a tower of values": zipped(b"\x80\x02}K\x01" + tower(60) + b"s."),
    "a function that is a tower": zipped(b"\x80\x02" + tower(60) + b")R."),
    "a tensor packed a thousand times": zipped(b"\x80\x02}.", zipfile.ZIP_DEFLATED, _0=bytes(1_200_000_000)),
    "a memo of that many places": zipped(b"\x80\x02}r" + struct.pack("<I", 1 << 27) + b"."),
    "no pickle": zipped(b"hello"),
    "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_checkpoints_are_refused_quickly(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.pth"
    path.write_bytes(HOSTILE[name])
    code = (
        "import resource, signal, sys\n"
        "from a2lp.errors import A2LPError\nfrom a2lp.images.backbones.weight_files import read_weights\n"
        "signal.alarm(60)\n"  # without the check, some take hours; reading millions of bytes takes seconds
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: read_weights(sys.argv[1])\nexcept A2LPError as error: print(str(error)[:1000])\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    message, megabytes = done.stdout.splitlines()
    assert str(path) in message
    assert int(megabytes) < 500


def test_values_are_compared_with_an_example() -> None:
    example = {"weights": {"a": torch.zeros(2, 3)}, "steps": [1, 2], "note": str, "loss": float | None}
    good = {"weights": {"a": torch.ones(2, 3)}, "steps": [5, 6], "note": "x", "loss": 3}
    kinds = {"weights": example["weights"], "steps": [int, int], "note": str, "loss": float | None}
    check_like(good, kinds, "it")
    for change, message in [
        ({"weights": {}}, "it.weights does not have the entries `a`"),
        (
            {"weights": {"a": torch.ones(2, 3).half()}},
            r"it.weights.a is not a tensor of shape \(2, 3\) and torch.float32",
        ),
        ({"weights": {"a": torch.ones(3, 2)}}, "it.weights.a is not a tensor"),
        ({"weights": {"a": torch.full((2, 3), float("nan"))}}, "it.weights.a has values that are not finite"),
        ({"steps": [5]}, "it.steps is not a list of 2"),
        ({"steps": [5, True]}, r"it.steps\[1\] is True; expected int"),
        ({"note": None}, "it.note is NoneType; expected str"),
        ({"loss": float("inf")}, "it.loss is inf; expected NoneType or float or int"),
        ({"loss": [[]] * 10**6}, "it.loss is list"),
        ({"more": 1}, "it does not have the entries"),
    ]:
        with pytest.raises(InputError, match=message):
            check_like(good | change, kinds, "it")


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_an_optimizer_continues_and_keeps_its_settings(kind: str) -> None:
    def make() -> tuple[Any, Any]:
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        if kind == "sgd":
            return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        return net, torch.optim.AdamW(net.parameters(), lr=0.1)

    def step(net: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        net(torch.ones(4, 3)).square().sum().backward()
        optimizer.step()

    net, optimizer = make()
    step(net, optimizer)
    other, again = make()
    other.load_state_dict(net.state_dict())
    found = copy.deepcopy(optimizer.state_dict())
    restore_optimizer(again, found | {"param_groups": [{"lr": "forged"}]})
    step(net, optimizer)
    step(other, again)
    assert torch.equal(net.weight, other.weight)
    name = "momentum_buffer" if kind == "sgd" else "exp_avg"
    squares = {"exp_avg_sq": -torch.ones(2, 3)} if kind == "adamw" else {}
    steps = {"step": torch.tensor(-3.0)} if kind == "adamw" else {}
    for change in (squares, steps):
        if change:
            with pytest.raises(InputError, match="negative"):
                restore_optimizer(again, found | {"state": {0: found["state"][0] | change}})
    for state in (
        {7: found["state"][0]},
        {0: {}},
        {0: found["state"][0] | {name: torch.zeros(1)}},
        {"x": {}},
        [],
        None,
    ):
        with pytest.raises(InputError):
            restore_optimizer(again, found | {"state": state})


def test_files_that_are_not_checkpoints_are_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(WeightsFileError, match=r"x\.pt cannot be read as a checkpoint.*Make it again"):
        read(tmp_path / "x.pt")
    with pytest.raises(
        InputError, match=r"y\.pt cannot be written \(No such file or directory\)|cannot be written \(Parent dir"
    ):
        write_checkpoint(tmp_path / "none" / "y.pt", {})

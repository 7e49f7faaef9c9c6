"""Backbones in ONNX files, which onnxruntime runs on the CPU: the one that comes with a2lp, and a user's own."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.arrays import NDArray
from a2lp.checks import listed, shown
from a2lp.errors import InputError, WeightsFileError, import_extra
from a2lp.files import reading, reason
from a2lp.images.backbones.backbone import Backbone, Runner
from a2lp.images.backbones.onnx_file import external_weights
from a2lp.images.normalisation import NAMED, Normalisation
from a2lp.images.view import View

SHIPPED = Path(__file__).parent / "data" / "efficientnet_lite0.onnx"

_EXPECTED = "an ONNX file with a network from images to vectors"
_LARGEST = (2 << 30) - 1  # of one protocol buffer
_LARGEST_SIDE = 4096  # pixels of an image that a network takes
_CROP = 0.875  # of the shorter side, as networks of ImageNet are evaluated
_KINDS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True, eq=False, kw_only=True)
class OnnxBackbone(Backbone):
    """A session of onnxruntime.

    Attributes
    ----------
    session : onnxruntime.InferenceSession
        It computes on the thread that calls it.
    output : str
        The output that is used: (n, dim), or (n, dim, h, w), which is averaged over positions.
    channels_last, one_by_one : bool
        Whether the network takes (n, h, w, 3), and whether it takes one image at a time only.
    kind : type
        Of the numbers that it takes.
    """

    session: Any
    output: str
    channels_last: bool
    one_by_one: bool
    kind: Any

    @property
    def options(self) -> dict[str, Any]:
        """The output, for files that have several."""
        return {"output": self.output}

    @property
    def versions(self) -> dict[str, str]:
        """The version of onnxruntime."""
        return {"onnxruntime": _onnxruntime().__version__}

    def state(self) -> str:
        """The SHA-256 of the file."""
        return str(self.weights)

    def on(self, device: str) -> Runner:
        """The network on the CPU."""
        if device not in ("auto", "cpu"):
            raise InputError(
                f"device={shown(device)} cannot be used: backbone {self.name!r} runs on the CPU. Leave it out."
            )
        return OnnxRunner(self)


class OnnxRunner(Runner):
    """Each worker runs the network on its own core; onnxruntime starts no threads that would wait for each other."""

    on_workers = True

    def __init__(self, backbone: OnnxBackbone) -> None:
        self.backbone = backbone
        self.input = backbone.session.get_inputs()[0].name
        self.mean, self.std = (255 * np.array(of, dtype=np.float32) for of in (backbone.mean, backbone.std))

    def forward(self, pixels: NDArray) -> NDArray:
        """Features, float32 (n, dim), of pixels, uint8 (n, h, w, 3)."""
        of = self.backbone
        x = ((pixels - self.mean) / self.std).astype(of.kind, copy=False)
        x = np.ascontiguousarray(x if of.channels_last else x.transpose(0, 3, 1, 2))
        parts = [x[i : i + 1] for i in range(len(x))] if of.one_by_one else [x]
        try:
            y = np.concatenate([of.session.run([of.output], {self.input: part})[0] for part in parts])
        except Exception as error:  # of onnxruntime: many kinds without a common ancestor
            raise InputError(
                f"backbone {of.name!r} cannot take images of {of.view.output} x {of.view.output} pixels "
                f"({_first_line(error)}). Give the view that it was made for, on the command line --view RESIZE/CROP."
            ) from error
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused later
            y = y.mean(axis=(2, 3), dtype=np.float32) if y.ndim == 4 else y.astype(np.float32, copy=False)
        if y.shape != (len(pixels), of.dim):
            raise InputError(
                f"backbone {of.name!r} gave {y.shape} numbers for {len(pixels)} images; expected {of.dim} for each. "
                "Export it with a batch axis that comes first."
            )
        return y


def onnx_backbone(
    name: str, source: str | Path, *, view: View | None = None, normalisation: Normalisation | None = None
) -> OnnxBackbone:
    """A network in an ONNX file.

    Parameters
    ----------
    name : str
        The name of the backbone.
    source : str or Path
        The file; as text also FILE#OUTPUT, for one of several outputs.
    view, normalisation : optional
        Without them, what the file says in its metadata (``a2lp.view``, ``a2lp.mean``, ``a2lp.std``); else the size of
        the network's input and the normalisation of ImageNet.
    """
    path, _, output = (str(source), "", "") if isinstance(source, Path) else source.partition("#")
    content = _read(Path(path))
    session, about = _session(content, path)
    images = session.get_inputs()
    shape: Sequence[Any] = images[0].shape if len(images) == 1 and images[0].type in _KINDS else ()
    if len(shape) != 4 or (shape[1] != 3 and shape[3] != 3 and isinstance(shape[1], int)):
        found = "; ".join(f"{each.name}: {each.type} {each.shape}" for each in images)
        raise WeightsFileError(
            f"{path} takes {found}; expected one input of images, float (n, 3, h, w) or (n, h, w, 3). Export it so."
        )
    channels_last = shape[1] != 3 and shape[3] == 3
    sides = [side for side in (shape[1:3] if channels_last else shape[2:]) if isinstance(side, int)]
    chosen, dim = _output(session, path, output)
    mean, std = normalisation or _normalisation(about, path)
    return OnnxBackbone(
        name=name,
        dim=dim,
        view=view or _view(about, sides, path),
        mean=mean,
        std=std,
        weights=f"sha256:{hashlib.sha256(content).hexdigest()}",
        session=session,
        output=chosen,
        channels_last=channels_last,
        one_by_one=shape[0] == 1,
        kind=_KINDS[images[0].type],
    )


def _onnxruntime() -> Any:
    return import_extra("embedding images without torch", "images", "onnxruntime")


def _read(path: Path) -> bytes:
    with reading(path, _EXPECTED, most=_LARGEST, error=WeightsFileError):
        content = path.read_bytes()
        others = external_weights(content)
        if others:
            raise InputError(
                f"its weights are in other files ({listed(others)}), which may change without it. Save it as one file, "
                "with onnx.save(onnx.load(FILE), NEW)."
            )
    return content


def _session(content: bytes, path: str) -> tuple[Any, dict[str, str]]:
    """The network, and the metadata of its file."""
    ort = _onnxruntime()
    options = ort.SessionOptions()
    # each worker calls it from a thread of its own, and stays on it
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures are raised, so they need not be logged
    try:
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"], enable_fallback=0)
        for each in (*session.get_inputs(), *session.get_outputs()):
            str((each.name, each.type, each.shape))  # fails where a name is not valid text
        return session, dict(session.get_modelmeta().custom_metadata_map)
    except Exception as error:  # of onnxruntime: many kinds without a common ancestor
        raise WeightsFileError(
            f"{path} cannot be used ({_first_line(error)}); expected {_EXPECTED}. Export it again, or update "
            "onnxruntime."
        ) from error


def _output(session: Any, path: str, wanted: str) -> tuple[str, int]:
    """The output with the vectors, and their dimensions."""
    outputs = {each.name: each for each in session.get_outputs()}
    usable = {name: each for name, each in outputs.items() if _dim(each) is not None}
    if (wanted and wanted not in usable) or not usable:
        found = "; ".join(f"{name} {each.shape}" for name, each in outputs.items())
        raise WeightsFileError(
            f"{path} has the outputs {found}. Vectors of images are (n, dim), or (n, dim, h, w), with a fixed dim; "
            "name one as onnx:FILE#OUTPUT, or export the network with such an output."
        )
    name = wanted or next(iter(usable))
    return name, int(_dim(usable[name]) or 0)


def _dim(output: Any) -> int | None:
    fits = len(output.shape) in (2, 4) and isinstance(output.shape[1], int) and output.type in _KINDS
    return output.shape[1] if fits else None


def _view(about: dict[str, str], sides: list[int], path: str) -> View:
    if "a2lp.view" in about:
        return View.parse(about["a2lp.view"])
    if sides and not 0 < sides[0] <= _LARGEST_SIDE:
        raise WeightsFileError(
            f"{path} takes images of {sides[0]} pixels; expected 1 to {_LARGEST_SIDE}. Export it again."
        )
    if not sides:
        raise InputError(
            f"{path} takes images of any size, and does not say which it was made for. Give a view, on the command "
            "line --view RESIZE/CROP, such as 256/224."
        )
    return View(math.floor(sides[0] / _CROP), sides[0])


def _normalisation(about: dict[str, str], path: str) -> Normalisation:
    given = [about.get(key) for key in ("a2lp.mean", "a2lp.std")]
    if given == [None, None]:
        return NAMED["imagenet"]
    try:
        mean, std = (",".join(map(str, json.loads(each or ""))) for each in given)
        return Normalisation.parse(f"{mean}/{std}")
    except (TypeError, ValueError) as error:
        raise WeightsFileError(
            f"{path}: its metadata has a2lp.mean = {shown(given[0])} and a2lp.std = {shown(given[1])}, which cannot be "
            "used. Give a normalisation, on the command line --normalise."
        ) from error


def _first_line(error: Exception) -> str:
    return reason(error).splitlines()[0][:300]

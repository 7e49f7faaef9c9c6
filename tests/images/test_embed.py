from __future__ import annotations

import copy
import dataclasses
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")

import torch
from PIL import Image

import a2lp
from a2lp.errors import A2LPWarning, CorruptImageError, FeatureFileError, InputError
from a2lp.features import FeatureSet
from a2lp.features import load as load_features
from a2lp.features.statistics import BaseStatistics
from a2lp.files import cache_folder
from a2lp.images import View
from a2lp.images import cache as cache_module
from a2lp.images.backbones import Backbone, create
from a2lp.images.datasets import ImageSet, load
from a2lp.images.embed import embed, embed_images

CLASSES = ("auk", "tern", "wren")


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return create("resnet12", seed=0, view=View(36, 32))


def write_images(root: Path, n: int, seed: int = 0) -> Path:
    """n images of several sizes, a third to each class."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        folder = root / CLASSES[i % 3]
        folder.mkdir(parents=True, exist_ok=True)
        small = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        Image.fromarray(small).resize((40 + i, 50)).save(folder / f"{i:03d}.png")
    return root


class Counter:
    """A progress callback that remembers how many images were to be embedded."""

    embedded = -1

    def __call__(self, what: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        if what == "embedding":
            self.embedded = total


def run(tmp_path: Path, source: Path | ImageSet, backbone: Backbone, **options: Any) -> tuple[FeatureSet, int]:
    """Embed a set or a folder; what came out, and how many images the network saw."""
    count = Counter()
    settings = {
        "cache": tmp_path / "cache",
        "batch_size": 4,
        "force": True,
        "progress": count,
        "device": "cpu",
    } | options
    images = load(source) if isinstance(source, Path) else source
    return embed(images, backbone, tmp_path / "out.npz", **settings), count.embedded


def by_hand(files: list[Path], backbone: Backbone, flip: bool) -> np.ndarray:
    """One image at a time, with Pillow and torch alone."""
    view, vectors = backbone.view, []
    for file in files:
        image = Image.open(file)
        scale = view.resize / min(image.size)
        image = image.resize((int(image.width * scale), int(image.height * scale)), Image.Resampling.BILINEAR)
        left, top = (round((side - view.crop) / 2) for side in image.size)
        pixels = np.asarray(image.crop((left, top, left + view.crop, top + view.crop))) / 255
        x = torch.tensor((pixels - backbone.mean) / backbone.std, dtype=torch.float32).permute(2, 0, 1)[None]
        with torch.no_grad():
            y = backbone.module(x.contiguous())
            y = (y + backbone.module(x.flip(3).contiguous())) / 2 if flip else y
        vectors.append(y[0].numpy())
    return np.stack(vectors)


@pytest.mark.parametrize("flip", [False, True])
def test_vectors_are_the_output_of_the_network(tmp_path: Path, backbone: Backbone, flip: bool) -> None:
    source = write_images(tmp_path / "images", 7)
    made, embedded = run(tmp_path, source, backbone, flip=flip, about={"split": "val"})
    assert embedded == 7
    expected = by_hand([source / file for file in made.files or ()], backbone, flip)
    # resizing rounds to whole grey levels, at slightly different places
    np.testing.assert_allclose(made.features, expected, atol=0.02 * np.abs(expected).max())
    assert abs(np.corrcoef(made.features.ravel(), expected.ravel())[0, 1]) > 0.9999

    file = load_features(tmp_path / "out.npz")
    np.testing.assert_array_equal(file.features, made.features)
    assert file.features.dtype == np.float16
    assert file.classes == CLASSES
    assert [CLASSES[label] for label in file.labels] == [name.split("/")[0] for name in file.files or ()]
    for key, value in {
        "split": "val",
        "backbone": "resnet12",
        "view": {"resize": 36, "crop": 32, "size": None},
        "mean": list(backbone.mean),
        "flip": flip,
        "images": 7,
        "skipped": {},
    }.items():
        assert file.about[key] == value
    assert file.about["versions"]["torch"] == torch.__version__
    assert file.about["weights"] is None  # random ones

    base, again = BaseStatistics.load(tmp_path / "out_base.npz"), BaseStatistics.of(file.features, file.labels)
    np.testing.assert_array_equal(base.within_cov, again.within_cov)
    assert base.count == 7


def test_every_worker_computes_on_one_thread_and_the_number_of_workers_changes_nothing(
    tmp_path: Path, backbone: Backbone
) -> None:
    """Threads that share an image spin while they wait for each other, which is slow on a busy machine."""
    source, seen = write_images(tmp_path / "images", 60), set()
    before = torch.get_num_threads()
    hook = backbone.module.register_forward_hook(lambda *_: seen.add((threading.get_ident(), torch.get_num_threads())))
    try:
        torch.set_num_threads(3)
        made = [
            run(tmp_path, source, backbone, workers=n, cache=tmp_path / f"cache of {n}", batch_size=size)[0].features
            for n, size in ((1, 4), (3, 4), (2, 60))
        ]
        after = torch.get_num_threads()
    finally:
        hook.remove()
        torch.set_num_threads(before)
    assert {threads for _, threads in seen} == {1} and threading.get_ident() not in dict(seen)
    assert len(dict(seen)) > 1
    assert after == 3
    for other in made[1:]:
        np.testing.assert_array_equal(other, made[0])


def test_progress_is_told_for_every_few_images(tmp_path: Path, backbone: Backbone) -> None:
    source, told = write_images(tmp_path / "images", 9), []
    (source / "auk" / "003.png").write_bytes(b"no image")
    run(tmp_path, source, backbone, on_corrupt="skip", batch_size=2, progress=lambda *what: told.append(what))
    done = [n for step, n, total in told if step == "embedding" and total == 9]
    assert done[0] == 0 and done[-1] == 9 and done == sorted(done) and len(done) == 6


PROGRAM = """
import sys
from a2lp.images import View, cache
from a2lp.images.backbones import create
from a2lp.images.datasets import load
from a2lp.images.embed import embed

cache.SHARD_SECONDS = 0  # a shard for each batch
backbone = create("resnet12", seed=0, view=View(72, 64))
source, out, folder = sys.argv[1:]
show = lambda *what: print(*what, flush=True)
embed(load(source), backbone, out, device="cpu", batch_size=4, cache=folder, progress=show)
"""


def test_kill_9_loses_nothing_and_nothing_is_done_twice(tmp_path: Path) -> None:
    source = write_images(tmp_path / "images", 42)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", "images", "broken.npz", "cache"]
    environment = os.environ | {"PYTHONPATH": str(Path(a2lp.__file__).parents[1])}

    def shards() -> list[Path]:
        return list((tmp_path / "cache").glob("features/*/*.npz"))

    killed = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not shards():
        assert killed.poll() is None and time.monotonic() < until
        time.sleep(0.002)
    killed.kill()
    assert killed.wait() == -9
    assert not (tmp_path / "broken.npz").exists()
    kept = sum(len(np.load(shard)["digests"]) for shard in shards())
    assert 0 < kept < 42

    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert f"embedding 0 {42 - kept}\n" in done.stdout
    digests = np.concatenate([np.load(shard)["digests"] for shard in shards()])
    assert len(digests) == len(set(digests.tolist())) == 42

    again = create("resnet12", seed=0, view=View(72, 64))
    whole = tmp_path / "whole.npz"
    unbroken = embed(load(source), again, whole, device="cpu", batch_size=4, cache=tmp_path / "another")
    broken = load_features(tmp_path / "broken.npz")
    np.testing.assert_array_equal(broken.features, unbroken.features)
    assert broken.files == unbroken.files


def test_an_image_is_embedded_once(tmp_path: Path, backbone: Backbone) -> None:
    source = write_images(tmp_path / "images", 6)
    first, embedded = run(tmp_path, source, backbone)
    assert embedded == 6
    # other names, another order, one twice, and a new one
    other = tmp_path / "other"
    for i, file in enumerate(reversed(first.files or ())):
        (other / f"{i}").mkdir(parents=True)
        shutil.copy(source / file, other / f"{i}" / "copy.png")
    shutil.copy(source / "auk" / "000.png", other / "0" / "twice.png")
    Image.new("RGB", (50, 50), "red").save(other / "0" / "new.png")
    second, embedded = run(tmp_path, other, backbone)
    assert embedded == 1
    rows = [(second.files or ()).index(f"{i}/copy.png") for i in reversed(range(6))]
    np.testing.assert_array_equal(second.features[rows], first.features)
    twice = (second.files or ()).index("0/twice.png")
    np.testing.assert_array_equal(second.features[twice], first.features[0])


def test_weights_that_were_trained_since_they_were_loaded(tmp_path: Path, backbone: Backbone) -> None:
    """The hash of their file does not identify them any more."""
    source = write_images(tmp_path / "images", 3)
    loaded = dataclasses.replace(backbone, module=copy.deepcopy(backbone.module), weights="sha256:of a file")
    first, _ = run(tmp_path, source, loaded)
    with torch.no_grad():
        next(loaded.module.parameters()).mul_(0.5)
    second, embedded = run(tmp_path, source, loaded)
    assert embedded == 3
    assert second.about["weights"] == first.about["weights"] == "sha256:of a file"
    assert second.about["state"] != first.about["state"]


@pytest.mark.parametrize("changed", ["flip", "weights", "view"])
def test_another_recipe_gives_other_vectors(tmp_path: Path, backbone: Backbone, changed: str) -> None:
    source = write_images(tmp_path / "images", 3)
    first, _ = run(tmp_path, source, backbone, flip=False)
    other = create("resnet12", seed=int(changed == "weights"), view=View(40 if changed == "view" else 36, 32))
    second, embedded = run(tmp_path, source, other, flip=changed == "flip")
    assert embedded == 3
    assert not np.allclose(first.features, second.features, atol=1e-3)
    _, embedded = run(tmp_path, source, backbone, flip=False)
    assert embedded == 0


def test_a_damaged_shard_is_named_and_made_again(tmp_path: Path, backbone: Backbone, monkeypatch: Any) -> None:
    monkeypatch.setattr(cache_module, "SHARD_SECONDS", 0)
    source = write_images(tmp_path / "images", 9)
    whole, _ = run(tmp_path, source, backbone)
    shards = sorted((tmp_path / "cache").glob("features/*/*.npz"))
    sizes = [len(np.load(shard)["digests"]) for shard in shards]
    content = bytearray(shards[0].read_bytes())
    content[len(content) // 2] ^= 1  # one bit of one vector
    shards[0].write_bytes(content)
    shards[1].write_bytes(b"")
    with pytest.warns(A2LPWarning) as caught:
        again, embedded = run(tmp_path, source, backbone)
    assert embedded == sizes[0] + sizes[1]
    assert [any(str(shard) in str(each.message) for each in caught) for shard in shards] == [True, True, False]
    np.testing.assert_allclose(again.features, whole.features, atol=1e-3)


def test_a_shard_with_a_vector_that_is_not_finite_is_damaged(tmp_path: Path, backbone: Backbone) -> None:
    source = write_images(tmp_path / "images", 6)
    whole, _ = run(tmp_path, source, backbone)
    (shard,) = (tmp_path / "cache").glob("features/*/*.npz")
    with np.load(shard) as content:
        arrays = dict(content)
    arrays["vectors"][2, 3] = np.inf
    np.savez(shard, **arrays)  # with checksums that are right
    with pytest.warns(A2LPWarning, match="not finite.*embedded again"):
        again, embedded = run(tmp_path, source, backbone)
    assert embedded == 6
    np.testing.assert_allclose(again.features, whole.features, atol=1e-3)


def test_embedding_without_a_file(tmp_path: Path, backbone: Backbone) -> None:
    source = write_images(tmp_path / "images", 5)
    before = set(tmp_path.iterdir())
    made = embed_images(load(source), backbone, device="cpu", cache=tmp_path / "cache", about={"split": "val"})
    assert set(tmp_path.iterdir()) == before | {tmp_path / "cache"}
    written, embedded = run(tmp_path, source, backbone)
    assert embedded == 0
    np.testing.assert_array_equal(made.features, written.features)
    assert (made.files, made.classes) == (written.files, written.classes)
    assert made.about == written.about | {"split": "val"}
    assert made.about["flip"] is True  # as a2lp classify embeds, by default


INTERRUPTED = """
import os, sys
from pathlib import Path
from a2lp.images import View
from a2lp.images.backbones import create
from a2lp.images.datasets import load
from a2lp.images.embed import embed

rename, kept = Path.replace, int(sys.argv[4])
def killed_after(self, target):
    global kept
    if not str(target).startswith(sys.argv[3]):
        if kept == 0:
            os.kill(os.getpid(), 9)
        kept -= 1
    return rename(self, target)
Path.replace = killed_after  # the last step of every write
embed(load(sys.argv[1]), create("resnet12", seed=0, view=View(36, 32)), sys.argv[2], device="cpu", cache=sys.argv[3])
"""


@pytest.mark.parametrize("writes", [0, 1])
def test_a_kill_between_features_and_statistics_does_not_stop_the_same_command(
    tmp_path: Path, backbone: Backbone, writes: int
) -> None:
    source, out = write_images(tmp_path / "images", 6), tmp_path / "out.npz"
    command = [sys.executable, "-c", INTERRUPTED, str(source), str(out), str(tmp_path / "cache")]
    environment = os.environ | {"PYTHONPATH": str(Path(a2lp.__file__).parents[1])}
    assert subprocess.run([*command, str(writes)], env=environment, check=False).returncode == -9
    assert len(list(tmp_path.glob("*.npz"))) == writes
    assert subprocess.run([*command, "99"], env=environment, check=False).returncode == 0
    again, _ = run(tmp_path, source, backbone)
    np.testing.assert_array_equal(load_features(out).features, again.features)
    assert BaseStatistics.load(tmp_path / "out_base.npz").count == 6


def test_other_statistics_are_not_replaced(tmp_path: Path, backbone: Backbone) -> None:
    images = load(write_images(tmp_path / "images", 6))
    other = BaseStatistics.of(np.random.default_rng(0).normal(size=(6, 640)), images.labels)
    other.save(tmp_path / "x_base.npz")
    with pytest.raises(InputError, match=r"x_base\.npz exists already"):
        embed(images, backbone, tmp_path / "x.npz", device="cpu", cache=tmp_path / "cache")
    assert not (tmp_path / "x.npz").exists()
    assert BaseStatistics.load(tmp_path / "x_base.npz").same(other)


def test_a_file_that_changes_meanwhile_is_not_cached(tmp_path: Path, backbone: Backbone) -> None:
    source = write_images(tmp_path / "images", 3)
    path = sorted(source.rglob("*.png"))[1]
    before = path.read_bytes()
    other = sorted(source.rglob("*.png"))[2].read_bytes()

    def change(what: str, done: int, total: int) -> None:
        if what == "embedding" and done == 0:  # its digest is known, its pixels are not
            path.write_bytes(other)

    with pytest.raises(CorruptImageError, match="was changed while this ran"):
        run(tmp_path, source, backbone, progress=change)
    path.write_bytes(before)
    found, _ = run(tmp_path, source, backbone)
    expected, _ = run(tmp_path, source, backbone, cache=tmp_path / "another")
    np.testing.assert_allclose(found.features, expected.features, atol=1e-3)


def test_corrupt_images_are_refused_or_skipped(tmp_path: Path, backbone: Backbone) -> None:
    source = write_images(tmp_path / "images", 9)
    whole, _ = run(tmp_path, source, backbone, cache=tmp_path / "another")
    cut, gone = source / "tern" / "004.png", source / "wren" / "008.png"
    cut.write_bytes(cut.read_bytes()[:200])
    (tmp_path / "out.npz").unlink()
    with pytest.raises(CorruptImageError, match=r"tern/004\.png"):
        run(tmp_path, source, backbone)
    assert not (tmp_path / "out.npz").exists()

    images = load(source)
    gone.unlink()  # while the set is being worked on
    made, embedded = run(tmp_path, images, backbone, on_corrupt="skip")
    assert embedded == 8 - 4  # those before the corrupt one were kept; it is tried again
    assert list(made.about["skipped"]) == ["tern/004.png", "wren/008.png"]
    assert all(made.about["skipped"].values())  # the reasons
    assert made.about["images"] == len(made) == 7
    rows = [(whole.files or ()).index(file) for file in made.files or ()]
    np.testing.assert_array_equal(made.labels, whole.labels[rows])
    np.testing.assert_allclose(made.features, whole.features[rows], atol=1e-3)


def test_bad_arguments_are_refused_before_anything_is_written(tmp_path: Path, backbone: Backbone) -> None:
    images = load(write_images(tmp_path / "images", 3))
    cache = tmp_path / "cache"
    (tmp_path / "there_base.npz").touch()
    for name, options, message in [
        ("there.npz", {}, "there_base.npz exists"),
        ("x.parquet", {}, "a2lp convert"),
        ("no/x.npz", {}, "no folder"),
        ("x.npz", {"device": "cuda:77"}, "cuda:77"),
        ("x.npz", {"device": "gpu"}, "'gpu'"),
        ("x.npz", {"batch_size": 0}, "batch_size=0"),
        ("x.npz", {"on_corrupt": "ignore"}, "refuse, skip"),
        ("x.npz", {"cache": tmp_path / "there_base.npz"}, "A2LP_CACHE"),
    ]:
        with pytest.raises((FeatureFileError, InputError), match=message):
            embed(images, backbone, tmp_path / name, **{"cache": cache} | options)
    assert not cache.exists()
    assert not (tmp_path / "x.npz").exists()


def test_vectors_that_are_not_finite_are_refused_and_not_kept(tmp_path: Path) -> None:
    source = write_images(tmp_path / "images", 3)
    broken = create("resnet12", seed=0, view=View(36, 32))
    with torch.no_grad():
        next(broken.module.parameters())[0] = float("nan")
    with pytest.raises(InputError, match=r"auk/000\.png is not finite"):
        run(tmp_path, source, broken)
    assert not list((tmp_path / "cache").glob("features/*/*.npz"))


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("A2LP_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("A2LP_CACHE")
    for system, variable, expected in [
        ("linux", "XDG_CACHE_HOME", tmp_path / "a2lp"),
        ("win32", "LOCALAPPDATA", tmp_path / "a2lp" / "cache"),
        ("darwin", "HOME", tmp_path / "Library" / "Caches" / "a2lp"),
    ]:
        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setenv(variable, str(tmp_path))
        assert cache_folder() == expected


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_same_vectors(tmp_path: Path) -> None:
    source = write_images(tmp_path / "images", 9)
    made = [
        run(tmp_path, source, create("resnet12", seed=0), device=device, cache=tmp_path / device)[0].features
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(made[0], made[1], atol=5e-3 * np.abs(made[0]).max())

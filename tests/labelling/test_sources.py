from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from a2lp.errors import A2LPError, FeatureFileError, InputError
from a2lp.features import FeatureSet, save
from a2lp.labelling.sources import Embedding, Points, embed_points, find_points, open_source

SMALL = Embedding("resnet12", Path("weights.safetensors"), view="36/32", device="cpu")


@pytest.mark.usefixtures("photos", "weights")
def test_a_folder_is_embedded_once() -> None:
    Path("photos/more").mkdir()
    Path("photos/000.png").rename("photos/more/000.png")
    Path("photos/notes.txt").write_text("no image")
    steps: list[tuple[str, int, int]] = []
    pool = open_source("photos", SMALL, lambda *what: steps.append(what))
    assert sorted(pool.keys) == [*(f"{i:03d}.png" for i in range(1, 12)), "more/000.png"]
    assert pool.paths == tuple(Path("photos", key) for key in pool.keys)
    assert pool.features.shape == (12, 640)
    assert ("embedding", 12, 12) in steps

    # each vector is its image's own: embedded alone, through another list, it is the same, and comes from the cache
    steps.clear()
    alone = embed_points(find_points_of("photos/005.png\n"), SMALL, lambda *what: steps.append(what))
    np.testing.assert_array_equal(alone.features[0], pool.features[pool.keys.index("005.png")])
    assert ("embedding", 0, 0) in steps


def find_points_of(text: str) -> Points:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(text))
        return find_points("-")


@pytest.mark.usefixtures("photos")
def test_paths_on_standard_input() -> None:
    lines = find_points_of("photos/003.png\n./photos/001.png\n\n")
    assert lines.keys == ("photos/003.png", "./photos/001.png")
    assert find_points_of("photos/003.png\0./photos/001.png\0").keys == lines.keys
    assert find_points_of("photos/003.png\r\n").keys == ("photos/003.png",)
    for text, words in {
        "": "no paths",
        "photos/003.png\nphotos/nothing.png\n": "`photos/nothing.png`",
        "photos\n": "`photos`",
        "photos/003.png\nphotos/003.png\n": "`photos/003.png`",
    }.items():
        with pytest.raises(InputError, match=words):
            find_points_of(text)


def test_feature_files(here: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    save(FeatureSet(x), "plain.npz")
    save(FeatureSet(x, files=["d", "b", "e", "a", "c"]), "named.npz")
    plain, named = open_source("plain.npz"), open_source(here / "named.npz")
    assert (plain.keys, plain.paths) == (("0", "1", "2", "3", "4"), None)
    assert named.keys == ("d", "b", "e", "a", "c")
    np.testing.assert_array_equal(named.features, x)
    assert len(open_source("digits").keys) == 1797
    save(FeatureSet(x, files=["d", "b", "b", "a", "c"]), "twice.npz")
    with pytest.raises(InputError, match="`b`"):
        open_source("twice.npz")


@pytest.mark.usefixtures("photos", "weights")
def test_images_that_cannot_be_read() -> None:
    Path("photos/004.png").write_bytes(b"no image")
    with pytest.raises(A2LPError, match=r"photos/004\.png"):
        open_source("photos", replace(SMALL, on_corrupt="refuse"))
    pool = open_source("photos", SMALL)
    assert list(pool.skipped) == ["004.png"]
    assert pool.keys == tuple(f"{row:03d}.png" for row in [0, 1, 2, 3, *range(5, 12)])
    assert len(pool.features) == len(pool.keys) == len(pool.paths or ())


def test_what_is_no_source(here: Path) -> None:
    Path("empty").mkdir()
    Path("features").mkdir()
    save(FeatureSet(np.eye(2)), "features/x.npz")
    pytest.importorskip("PIL")
    for source, words in {"empty": "no image", "features": r"features/x\.npz"}.items():
        with pytest.raises(InputError, match=words):
            find_points(source)
    with pytest.raises(FeatureFileError, match=r"nowhere\.npz"):
        find_points(here / "nowhere.npz")


@pytest.mark.usefixtures("photos", "weights")
def test_photographs_of_telephones_and_panoramas_are_points() -> None:
    heif, image = pytest.importorskip("pillow_heif"), pytest.importorskip("PIL.Image")
    for name in ("000", "001"):
        with image.open(f"photos/{name}.png") as picture:
            heif.from_pillow(picture).save(f"photos/IMG_{name}.HEIC")
            picture.save(f"photos/IMG_{name}.avif")
    image.new("RGB", (12_000, 8_000), (200, 30, 30)).save("photos/panorama.jpg")
    points = open_source("photos", SMALL)
    assert len(points) == 12 + 4 + 1 and not points.skipped
    assert {"IMG_000.HEIC", "IMG_001.avif", "panorama.jpg"} < set(points.keys)

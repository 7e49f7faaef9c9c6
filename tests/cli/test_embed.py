from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from a2lp.cli.app import app
from a2lp.features import load
from a2lp.features.statistics import BaseStatistics

pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

RESNET = ("--backbone", "resnet12", "--weights", "weights.safetensors")


@pytest.fixture
def folder(weights: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; ``birds`` in it holds five images of two classes."""
    tmp_path = weights.parent
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A2LP_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for name in ("auk/0", "auk/1", "auk/2", "wren/3", "wren/4"):
        path = tmp_path / "birds" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["embed", "birds", *RESNET, "--view", "36/32", *arguments])


def test_embed_writes_features_and_base_statistics(folder: Path) -> None:
    result = run("--out", "made.npz")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        "birds: 5 vectors of 640 dimensions (resnet12), 0 images skipped -> made.npz\n"
        "base statistics of 2 classes -> made_base.npz\n"
    )
    assert result.stderr == "5 images, 5 of them not in the cache\n"
    made = load("made.npz")
    assert made.classes == ("auk", "wren")
    assert made.about["set"] == "birds"
    assert BaseStatistics.load("made_base.npz").count == 5
    assert list((folder / "cache").glob("features/*/*.npz"))

    result = run("--out", "again.npz")
    assert result.stderr == ""
    np.testing.assert_array_equal(load("again.npz").features, made.features)
    result = run("--out", "third.npz", "--cache", "another")
    assert result.stderr == "5 images, 5 of them not in the cache\n"
    assert list((folder / "another").glob("features/*/*.npz"))

    result = run("--out", "made.npz")
    assert result.exit_code == 2
    assert "--force" in result.stderr
    assert made.about["flip"] is True
    assert run("--out", "made.npz", "--force", "--no-flip").exit_code == 0
    assert load("made.npz").about["flip"] is False


def test_a_corrupt_image(folder: Path) -> None:
    (folder / "birds" / "auk" / "1.png").write_bytes(b"no image")
    result = run()
    assert result.exit_code == 2
    assert "auk/1.png" in result.stderr
    assert "--on-corrupt skip" in result.stderr
    assert not Path("features.npz").exists()
    result = run("--on-corrupt", "skip")
    assert result.exit_code == 0
    assert "skipped: auk/1.png: it is none of JPEG" in result.stderr
    assert "4 vectors" in result.stdout
    assert "1 image skipped" in result.stdout


def test_nothing_is_left_out_in_silence(folder: Path) -> None:
    """Pictures of kinds that are not read, links to nowhere, and classes of which nothing is left."""
    auk, wren = folder / "birds" / "auk", folder / "birds" / "wren"
    (auk / "5.JXL").touch()
    (auk / "notes.txt").touch()
    (auk / "6.jpg").symlink_to("nowhere.jpg")
    Image.open(auk / "0.png").save(auk / "7.jfif", "JPEG")
    for path in wren.iterdir():
        path.write_bytes(b"no image")
    result = run()
    assert result.exit_code == 2
    assert "auk/6.jpg" in result.stderr
    result = run("--on-corrupt", "skip")
    assert result.exit_code == 0
    assert "birds: 1 picture of a kind that is not read, left out: 1 .jxl." in result.stderr
    assert "skipped: auk/6.jpg: " in result.stderr
    assert "no image of the class 'wren' could be read" in result.stderr
    assert "4 vectors" in result.stdout
    assert "3 images skipped" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["embed", "nowhere"], "nowhere"),
        (["embed", "birds", "--backbone", "resnet13"], "'resnet12'"),
        (["embed", "birds", "--backbone", "resnet12", "--view", "big"], "RESIZE/CROP"),
        (["embed", "birds", "--backbone", "resnet12", "--weights", "none.safetensors"], "none.safetensors"),
        (["embed", "birds", "--backbone", "resnet12"], "--weights FILE"),
        (["embed", "birds", *RESNET, "--device", "gpu"], "'gpu'"),
        (["embed", "birds", *RESNET, "--workers", "-1"], "workers=-1"),
        (["embed", "birds", *RESNET, "--on-corrupt", "skp"], "'skip'"),
        (["embed", "birds", *RESNET, "--view", "90000/90000"], "GiB of memory"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_errors_are_one_paragraph(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1 or "Expected for" in result.stderr  # a layout is shown as a tree
    assert said in result.stderr
    assert not Path("features.npz").exists()


def test_classify_sees_the_vectors_that_embed_writes(folder: Path) -> None:
    from a2lp.labelling.sources import Embedding, open_source

    assert run("--out", "made.npz").exit_code == 0
    made = load("made.npz")
    assert made.about["flip"] is True
    seen = open_source("birds", Embedding("resnet12", Path("weights.safetensors"), "36/32", cache=folder / "other"))
    assert set(seen.keys) == set(made.files or ())
    order = [seen.keys.index(file) for file in made.files or ()]
    np.testing.assert_array_equal(seen.features[order], made.features)


def test_feature_files_are_joined(folder: Path) -> None:
    for name in ("one", "two"):
        assert run("--out", f"{name}_train.npz").exit_code == 0
    joined = ["embed", "--join", "one_train.npz", "two_train.npz", "--out", "both.npz"]
    result = CliRunner().invoke(app, joined)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        "one_train+two_train: 5 vectors of 1280 dimensions (resnet12+resnet12) -> both.npz\n"
        "base statistics of 2 classes -> both_base.npz\n"
    )
    one, both = load("one_train.npz").features.astype(np.float64), load("both.npz").features
    centred = one - BaseStatistics.load("one_train_base.npz").mean
    expected = centred / np.sqrt((centred**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(both, np.hstack([expected, expected]), atol=1e-3)

    for wrong, said in (
        (["embed", "birds", "birds", *RESNET], "2 sources can only be given with --join"),
        (["embed", "birds", *RESNET, "--base", "one_train_base.npz"], "--base can only be given with --join"),
        ([*joined, "--force", "--view", "36/32"], "--join reads vectors, and --view is for images"),
        ([*joined, "--force", "--base", "one_train_base.npz"], "statistics of 1 network are given for 2 feature sets"),
    ):
        result = CliRunner().invoke(app, wrong)
        assert result.exit_code == 2
        assert said in result.stderr

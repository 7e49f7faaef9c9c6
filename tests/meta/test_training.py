"""Training on base classes helps on novel classes, is reproducible, and continues after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import a2lp
from a2lp.cli.app import app
from a2lp.errors import InputError, UnknownNameError, WeightsFileError
from a2lp.features import FeatureSet, load, save
from a2lp.meta.base import as_episode
from a2lp.meta.checkpoint import Evaluation
from a2lp.meta.training import TRAINABLE, MetaConfig, spread_classes, train, trainable
from a2lp.tasks.samplers import draw

ROOT = Path(__file__).resolve().parents[2]
TINY = {"ways": 3, "queries": 5, "shots": (1, 2), "batch": 4, "evaluations": 4, "spread": 1.0}


def accuracies(name: str, features: FeatureSet, n_tasks: int = 100, **sizes: Any) -> np.ndarray[Any, Any]:
    weights = sizes.pop("weights", None)
    shape = {"n_way": 3, "n_shot": 1, "n_query": 5} | sizes
    tasks = draw("balanced", features.labels, seed=5, n_tasks=n_tasks, **shape)
    found = a2lp.create(name, weights=weights).predict(tasks.batch(features.features.astype(np.float32)))
    return 100 * (found.labels == tasks.query_labels).mean(axis=1)


@pytest.mark.parametrize(("name", "steps"), [("sib", 60), ("sib_e3bm", 60), ("tpn_learned", 40), ("dpgn", 60)])
def test_training_on_base_classes_helps_on_novel_ones(
    name: str, steps: int, base: FeatureSet, novel: FeatureSet, tmp_path: Path
) -> None:
    out = tmp_path / "head.safetensors"
    evaluations = train(MetaConfig.of(name, steps=steps, **TINY), base, out)
    assert [found.step for found in evaluations] == [steps // 4 * i for i in (1, 2, 3, 4)]
    assert evaluations[-1].loss < evaluations[0].loss
    gain = accuracies(name, novel, weights=out) - accuracies(name, novel)
    assert gain.mean() - 1.96 * gain.std(ddof=1) / len(gain) ** 0.5 > 0


@pytest.mark.parametrize("name", TRAINABLE)
def test_every_number_of_a_head_gets_a_gradient(name: str, base: FeatureSet) -> None:
    head = trainable(name)().new_head(64, 3)
    with torch.no_grad():
        for parameter in head.parameters():  # layers that start at zero pass nothing on
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    tasks = draw("balanced", base.labels, seed=0, n_way=3, n_shot=2, n_query=5, n_tasks=3)
    episode = as_episode(trainable(name)()._points(tasks.batch(base.features)))
    head.loss(episode, torch.from_numpy(tasks.query_labels)).backward()
    for key, parameter in head.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, key


def test_the_best_on_validation_classes_is_kept_and_everything_is_recorded(
    base: FeatureSet, novel: FeatureSet, tmp_path: Path
) -> None:
    out = tmp_path / "head.safetensors"
    config = MetaConfig.of("sib", steps=12, **TINY | {"evaluations": 6, "lr": 0.05})
    reported: list[tuple[int, Evaluation | None]] = []
    evaluations = train(config, base, out, val=novel, progress=lambda *made: reported.append(made))
    assert [step for step, _ in reported] == list(range(1, 13))
    assert [found for _, found in reported if found is not None] == evaluations
    totals = [sum(found.accuracies or ()) for found in evaluations]
    chosen = totals.index(max(totals))
    assert [i for i, found in enumerate(evaluations) if found.best][-1] == chosen
    train(MetaConfig.of("sib", steps=12, **TINY | {"evaluations": 6, "lr": 0.05}), base, tmp_path / "last.safetensors")
    last, kept = load_file(tmp_path / "last.safetensors"), load_file(out)
    assert (chosen == 5) == all(torch.equal(kept[key], last[key]) for key in kept)
    with safe_open(out, framework="pt") as content:
        about = json.loads(content.metadata()["about"])
    assert about["method"] == "sib"
    assert about["identity"]["config"]["lr"] == 0.05
    assert about["identity"]["base"].startswith("base digits: 1083 x 64, 6 classes, sha256:")
    assert {"versions", "commit", "date", "hardware", "seconds"} <= set(about)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head.safetensors", "last.safetensors"]


def test_training_is_reproducible_and_a_finished_run_is_not_run_again(base: FeatureSet, tmp_path: Path) -> None:
    config = MetaConfig.of("sib", steps=8, **TINY)
    before = torch.random.get_rng_state()
    evaluations = train(config, base, tmp_path / "a.safetensors")
    train(config, base, tmp_path / "b.safetensors")
    assert torch.equal(before, torch.random.get_rng_state())
    a, b = load_file(tmp_path / "a.safetensors"), load_file(tmp_path / "b.safetensors")
    assert all(torch.equal(a[key], b[key]) for key in a)
    written = (tmp_path / "a.safetensors").stat().st_mtime_ns
    assert train(config, base, tmp_path / "a.safetensors") == evaluations
    assert (tmp_path / "a.safetensors").stat().st_mtime_ns == written
    other = MetaConfig.of("sib", steps=8, **TINY | {"seed": 1})
    with pytest.raises(WeightsFileError, match=r"a\.safetensors is of another run\. .*--force"):
        train(other, base, tmp_path / "a.safetensors")
    train(other, base, tmp_path / "a.safetensors", force=True)
    assert not torch.equal(load_file(tmp_path / "a.safetensors")["diagonal"], a["diagonal"])


def test_files_of_earlier_versions_are_read(base: FeatureSet, tmp_path: Path) -> None:
    """Their name for evaluations is ``looks``."""
    config, out = MetaConfig.of("sib", steps=4, **TINY), tmp_path / "a.safetensors"
    evaluations = train(config, base, out)
    with safe_open(out, framework="pt") as content:
        metadata = content.metadata()
    about = json.loads(metadata["about"])
    about["looks"] = about.pop("evaluations")
    about["identity"]["config"]["looks"] = about["identity"]["config"].pop("evaluations")
    save_file(load_file(out), out, metadata | {"about": json.dumps(about)})
    written = out.stat().st_mtime_ns
    assert train(config, base, out) == evaluations
    assert out.stat().st_mtime_ns == written
    for path in sorted((ROOT / "trained" / "meta").glob("*.safetensors")):
        found = a2lp.create(path.stem, weights=path).trained
        assert found is not None
        assert Evaluation.of(found.about["looks"][-1]).step == found.about["identity"]["config"]["steps"]


def forged(checkpoint: Path, **changes: Any) -> None:
    torch.save(torch.load(checkpoint, weights_only=True) | changes, checkpoint)


def test_a_checkpoint_with_a_wrong_field_is_named(base: FeatureSet, tmp_path: Path) -> None:
    config, out = MetaConfig.of("sib", steps=8, **TINY), tmp_path / "a.safetensors"

    def stop(step: int, evaluation: Evaluation | None) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, base, out, progress=stop)
    path = tmp_path / "a.checkpoint.pt"
    whole = path.read_bytes()
    content = torch.load(path, weights_only=True)
    state, optimizer = content["state"], content["optimizer"]
    short = {0: optimizer["state"][0] | {"exp_avg": torch.zeros(1)}}
    for changes, message in [
        ({"head": {}}, "the checkpoint.head does not have the entries"),
        ({"head": content["head"] | {"scale": torch.zeros(3)}}, "the checkpoint.head.scale is not a tensor of shape"),
        ({"optimizer": optimizer | {"state": short}}, "optimizer.state"),
        ({"state": state | {"step": "4"}}, "state.step is '4'; expected int"),
        ({"state": state | {"step": -1}}, "its evaluations do not fit its step"),
        ({"state": state | {"evaluations": []}}, "its evaluations do not fit its step"),
        ({"state": state | {"evaluations": [1, 2]}}, "evaluation does not have the entries"),
        ({"state": state | {"best_head": {}}}, "state.best_head does not have the entries"),
        ({"state": state | {"loss": float("nan")}}, "state.loss is nan"),
        ({"state": []}, "the checkpoint.state is list"),
        ({"identity": 3}, "identity is 3; expected str"),
        ({"identity": "["}, "identity must be JSON"),
        ({"more": 1}, "does not have the entries"),
    ]:
        path.write_bytes(whole)
        forged(path, **changes)
        with pytest.raises(WeightsFileError, match=rf"a\.checkpoint\.pt: .*{message}"):
            train(config, base, out)
    path.write_bytes(whole)
    assert [found.step for found in train(config, base, out)] == [2, 4, 6, 8]


def test_weights_with_wrong_metadata_are_named(base: FeatureSet, tmp_path: Path) -> None:
    config, out = MetaConfig.of("sib", steps=4, **TINY), tmp_path / "a.safetensors"
    train(config, base, out)
    with safe_open(out, framework="pt") as content:
        metadata, tensors = content.metadata(), load_file(out)
    for change, message in [
        ({"n_dims": "-1"}, "expected whole numbers, 1 or more"),
        ({"n_dims": "9" * 5000}, "a number of 5000 digits"),
        ({"n_dims": "999999"}, "does not fit the network of SIBHead: the head.diagonal is not a tensor of shape"),
        ({"n_way": "4"}, "does not fit the network of SIBHead"),
        ({"about": "[]"}, "about is list; expected dict"),
        ({"about": "[" * 10**5}, "more than 64 levels deep"),
    ]:
        save_file(tensors, out, metadata | change)
        with pytest.raises(WeightsFileError, match=rf"a\.safetensors.*{message}"):
            a2lp.create("sib", weights=out)
    save_file(tensors, out, {name: text for name, text in metadata.items() if name != "head"})
    with pytest.raises(WeightsFileError, match="its metadata has no head"):
        a2lp.create("sib", weights=out)
    save_file(tensors | {"scale": torch.tensor(float("nan"))}, out, metadata)
    with pytest.raises(WeightsFileError, match=r"the head.scale has values that are not finite"):
        a2lp.create("sib", weights=out)


def test_a_killed_command_continues_to_the_same_weights(base: FeatureSet, tmp_path: Path) -> None:
    save(base, tmp_path / "base.npz")
    sizes = ["--ways", "3", "--queries", "5", "--shots", "1,2", "--steps", "120", "--evaluations", "24", "--batch", "2"]
    options = ["meta-train", "sib", "--features", str(tmp_path / "base.npz"), *sizes, "--out"]
    command = [sys.executable, "-m", "a2lp", *options, str(tmp_path / "killed.safetensors")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    with_ = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **with_)
    checkpoint, until = tmp_path / "killed.checkpoint.pt", time.monotonic() + 100
    while not checkpoint.exists() and time.monotonic() < until:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert checkpoint.exists()
    assert not (tmp_path / "killed.safetensors").exists()
    again = subprocess.run(command, check=False, timeout=200, **with_)
    assert again.returncode == 0, again.stderr
    assert "step 5," not in again.stderr  # it did not start anew
    assert "step 120," in again.stderr
    whole = CliRunner().invoke(app, [*options, str(tmp_path / "whole.safetensors")])
    assert "step 5," in whole.output
    a, b = (load_file(tmp_path / f"{name}.safetensors") for name in ("killed", "whole"))
    assert all(torch.equal(a[key], b[key]) for key in b)
    assert not list(tmp_path.glob("*checkpoint*"))


def test_spread_moves_class_means_and_nothing_else(base: FeatureSet) -> None:
    features = base.features.astype(np.float64)
    moved = spread_classes(features, base.labels, 0.25)
    means = {c: features[base.labels == c].mean(0) for c in range(6)}
    centre = np.mean(list(means.values()), axis=0)
    for c, mean in means.items():
        rows = base.labels == c
        np.testing.assert_allclose(moved[rows].mean(0) - centre, 0.25 * (mean - centre), atol=1e-9)
        np.testing.assert_allclose(moved[rows] - moved[rows].mean(0), features[rows] - mean, atol=1e-9)
    np.testing.assert_array_equal(spread_classes(features, base.labels, 1.0), features)


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"steps": 0}, ["steps=0", "1 or more"]),
    ({"ways": 1}, ["ways=1", "2 or more"]),
    ({"shots": ()}, ["shots", "1,5"]),
    ({"shots": (0,)}, ["shots=0", "1 or more"]),
    ({"spread": 0.0}, ["spread=0.0", "at most 1", "leaves them alone"]),
    ({"lr": -1.0}, ["lr=-1.0", "positive"]),
    ({"optimizer": "adam"}, ["'adam'", "adamw"]),
    ({"seed": -1}, ["seed=-1", "0 or more"]),
]


@pytest.mark.parametrize(("change", "words"), BAD)
def test_bad_settings_are_named_with_their_rule(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        MetaConfig.of("sib", **change)
    assert all(word in str(raised.value) for word in words), raised.value


def test_methods_and_features_that_cannot_be_trained(base: FeatureSet, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"method to train: 'lp'.*can, dpgn, sib, sib_e3bm, tpn_learned"):
        MetaConfig.of("lp")
    config = MetaConfig.of("sib", steps=4, **TINY)
    out = tmp_path / "head.safetensors"
    with pytest.raises(InputError, match=r"'plain' has no labels"):
        train(config, FeatureSet(base.features, name="plain"), out)
    with pytest.raises(InputError, match=r"'\.pt'.*\.safetensors"):
        train(config, base, tmp_path / "head.pt")
    with pytest.raises(InputError, match=r"no folder .*nowhere\. Create it"):
        train(config, base, tmp_path / "nowhere" / "head.safetensors")
    checkpoint = tmp_path / "head.checkpoint.pt"
    checkpoint.write_bytes(b"no checkpoint")
    with pytest.raises(WeightsFileError, match=r"head\.checkpoint\.pt cannot be read.*Delete it"):
        train(config, base, out)
    torch.save({"identity": json.dumps({"config": "another"})}, checkpoint)
    with pytest.raises(WeightsFileError, match=r"head\.checkpoint\.pt is of a run with other settings"):
        train(config, base, out)


def test_the_command_prints_the_best_evaluation(base: FeatureSet, novel: FeatureSet, tmp_path: Path) -> None:
    save(base, tmp_path / "base.npz")
    save(novel, tmp_path / "val.npz")
    out = tmp_path / "tpn.safetensors"
    data = ["--features", str(tmp_path / "base.npz"), "--val", str(tmp_path / "val.npz"), "--out", str(out)]
    sizes = ["--ways", "3", "--shots", "1", "--queries", "5", "--steps", "4", "--batch", "2", "--evaluations", "2"]
    done = CliRunner().invoke(app, ["meta-train", "tpn_learned", *data, *sizes])
    assert done.exit_code == 0, done.output
    assert f"{out}: step " in done.output
    assert "on validation classes (best)" in done.output
    assert a2lp.create("tpn_learned", weights=out).trained is not None
    refused = CliRunner().invoke(app, ["meta-train", "lp", *data, *sizes])
    assert refused.exit_code == 2
    assert "method to train: 'lp'" in refused.output


@pytest.mark.parametrize("name", TRAINABLE)
def test_shipped_weights_beat_the_untrained_head_on_novel_classes(name: str) -> None:
    """On the bundled features, which come from the network whose base features these were trained on."""
    features, sizes = load("cub"), {"n_way": 5, "n_shot": 1, "n_query": 15, "n_tasks": 200}
    trained = accuracies(name, features, weights=ROOT / "trained" / "meta" / f"{name}.safetensors", **sizes)
    gain = trained - accuracies(name, features, **sizes)
    assert gain.mean() - 1.96 * gain.std(ddof=1) / len(gain) ** 0.5 > 0

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from typer.testing import CliRunner

import a2lp
from a2lp.cli.train import curve
from a2lp.cli.train import train as command
from a2lp.environment import commit as package_commit
from a2lp.errors import A2LPError, InputError, UnknownNameError, WeightsFileError
from a2lp.features import load as load_features
from a2lp.images import View
from a2lp.images.backbones import create
from a2lp.images.backbones.networks import torch_backbone
from a2lp.images.backbones.resnet import ResNet12
from a2lp.images.backbones.weight_files import read_weights
from a2lp.images.datasets import load
from a2lp.images.training import Evaluation, TrainConfig, checkpoint, train
from a2lp.images.training.augment import Normalise, augment, planes, recolour, resample, windows
from a2lp.images.training.checkpoint import RunState, read_record
from a2lp.images.training.loop import Schedule, evaluate
from a2lp.images.training.loop import _loop as steps_loop
from a2lp.images.training.recipes import Classifier, Mix, assemble, draw_mix, loss
from a2lp.images.training.run import Average, Run, recalibrate
from a2lp.images.training.validate import embed, nearest_mean
from a2lp.methods.registry import create as create_method
from a2lp.tasks.samplers import draw

SIDE = 16
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "name": "tiny",
    "backbone": "resnet12_512",
    "kept": f"{SIDE}/{SIDE}",
    "size": SIDE,
    "views": [f"{SIDE}/{SIDE}"],
    "epochs": 1,
    "batch": 6,
    "rotated": 2,
    "shift": 2,
    "warmup": 50,
    "evaluations": 3,
    "evaluation_tasks": 20,
    "recalibrate": 0,
    "checkpoint_seconds": 0,
}


def config(**settings) -> TrainConfig:
    return TrainConfig.of(**SETTINGS | settings)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Class folders of noisy squares of one colour: classes that a network can tell apart, all different."""
    root = tmp_path_factory.mktemp("squares")
    rng = np.random.default_rng(0)
    for split, classes, each in (("train", 6, 12), ("val", 5, 20), ("test", 5, 20)):
        for c in range(classes):
            place = root / split / f"{split}{c}"
            place.mkdir(parents=True)
            colour = rng.integers(40, 216, 3)
            for i in range(each):
                pixels = np.clip(colour + rng.normal(0, 12, (SIDE, SIDE, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(place / f"{i}.png")
    return root


def small_model(n_classes: int = 3) -> Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Classifier(ResNet12((4, 5, 6, 7), 0.0, 0.0), n_classes)


def random_images(n: int) -> torch.Tensor:
    return torch.rand(n, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(n))


# Recipes


def test_rotated_images_carry_their_class_and_their_number_of_quarter_turns():
    images, labels = random_images(5), torch.tensor([0, 1, 2, 3, 4])
    batch = assemble(images, labels, config(batch=3, rotated=2), None)
    assert batch.images.shape == (3 + 8, 3, SIDE, SIDE)
    assert torch.equal(batch.images[:3], images[:3])
    for i, turns in enumerate(batch.turns.tolist()):
        source = labels.tolist().index(batch.labels[3 + i].item())
        expected = np.rot90(images[source].numpy(), turns, axes=(1, 2))
        assert np.array_equal(batch.images[3 + i].numpy(), expected)
    assert sorted(zip(batch.labels[3:].tolist(), batch.turns.tolist(), strict=True)) == [
        (label, turns) for label in (3, 4) for turns in range(4)
    ]


@pytest.mark.parametrize("stage", [0, 2])
def test_the_loss_is_the_mixed_one_plus_the_rotated_ones(stage):
    settings = config(batch=4, rotated=2, smoothing=0.1, rotation_weight=0.5)
    model = small_model().eval()  # so that a part of the batch can be computed alone
    partner, share = torch.tensor([3, 0, 1, 2]), 0.3
    images, labels = random_images(6), torch.tensor([0, 1, 2, 0, 1, 2])
    found = loss(model, assemble(images, labels, settings, Mix(stage, share, 4)), settings)

    x, y = images[:4], images[4:]
    for i, module in enumerate(model.net.stages):
        if i == stage:
            x = share * x + (1 - share) * x[partner]
        x = module(x)
    logits = F.log_softmax(model.classes(x.mean((2, 3))), 1)
    one_hot = 0.9 * F.one_hot(labels[:4], 3) + 0.1 / 3
    other = 0.9 * F.one_hot(labels[:4][partner], 3) + 0.1 / 3
    expected = -((share * one_hot + (1 - share) * other) * logits).sum(1).mean()
    parts = []
    for turns in range(4):
        features = model.net(torch.rot90(y, turns, (2, 3)))
        parts.append(F.cross_entropy(model.classes(features), labels[4:], label_smoothing=0.1))
        parts.append(0.5 * F.cross_entropy(model.rotations(features), torch.tensor([turns, turns])))
    expected = expected + sum(parts) / 4
    torch.testing.assert_close(found, expected)


def test_a_teacher_replaces_part_of_the_loss_by_the_divergence_from_its_predictions():
    settings = config(batch=4, rotated=0, mixup=0, smoothing=0, distil_weight=0.3, distil_temperature=2.0)
    model, images, labels = small_model().eval(), random_images(4), torch.tensor([0, 1, 2, 0])
    soft = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    found = loss(model, assemble(images, labels, settings, None), settings, soft)
    logits = model.classes(model.net(images))
    p, q = (soft / 2).softmax(1), (logits / 2).softmax(1)
    divergence = (p * (p.log() - q.log())).sum(1).mean()
    expected = 0.7 * F.cross_entropy(logits, labels) + 0.3 * 4 * divergence
    torch.testing.assert_close(found, expected)


def test_a_second_generation_learns_from_the_first(folder, weights, tmp_path):
    images = {split: load(folder, split) for split in ("train", "val")}
    settings = config(backbone="resnet12", teacher=str(weights), jitter=0)  # random weights tell colours apart
    run = Run(settings, images["train"], None, torch.device("cpu"), 1)
    assert run.teacher is not None and not any(p.requires_grad for p in run.teacher.parameters())
    before = {name: value.clone() for name, value in run.teacher.state_dict().items()}
    batch = run._batch(0)
    soft = run.teacher.logits(batch.images, None)
    assert (
        soft[settings.batch :].argmax(1) == batch.labels[settings.batch :]
    ).float().mean() > 0.5  # it recognises them
    run.step(0, 0.1)
    for name, value in run.teacher.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    result = train(settings, images["train"], images["val"], tmp_path / "second", device="cpu", workers=1)
    assert result.record["data"]["teacher_sha256"].startswith("sha256:")
    assert result.record["config"]["teacher"] == settings.teacher


def test_a_teacher_may_be_another_network_with_as_many_stages(folder, weights, tmp_path):
    images = load(folder, "train")
    settings = config(backbone="wrn28_10", options={"stem_stride": 2}, teacher=str(weights), mixup=2.0)
    run = Run(settings, images, None, torch.device("cpu"), 1)
    assert run.teacher is not None
    batch = run._batch(0)
    soft = run.teacher.logits(batch.images, batch.mix)
    assert soft.shape == (len(batch.labels), len(np.unique(images.labels)))
    assert isinstance(run.teacher.net, ResNet12)
    run.step(0, 0.1)
    assert torch.isfinite(run.loss_sum)


def test_training_goes_on_from_the_weights_of_start(folder, weights, tmp_path):
    images = {split: load(folder, split) for split in ("train", "val")}
    run = Run(config(backbone="resnet12", start=str(weights)), images["train"], None, torch.device("cpu"), 1)
    trained = torch_backbone("resnet12", weights).module.state_dict()
    for name, value in run.model.net.state_dict().items():
        torch.testing.assert_close(value, trained[name], rtol=0, atol=0)
    out = tmp_path / "later"
    result = train(config(backbone="resnet12", start=str(weights)), *images.values(), out, device="cpu", workers=1)
    assert result.record["data"]["start_sha256"] == read_weights(weights).digest


def test_a_missing_teacher_is_named_before_training(folder, tmp_path):
    with pytest.raises(WeightsFileError, match=r"no-such\.safetensors"):
        train(config(teacher="no-such.safetensors"), load(folder, "train"), None, tmp_path / "out", device="cpu")


def test_plain_is_cross_entropy_alone():
    settings = config(recipe="plain", batch=4, rotated=0)
    model = small_model().eval()
    images, labels = random_images(4), torch.tensor([0, 1, 2, 0])
    mix = draw_mix(settings, 0, 4)
    assert mix is None
    found = loss(model, assemble(images, labels, settings, mix), settings)
    torch.testing.assert_close(found, F.cross_entropy(model.classes(model.net(images)), labels))


def test_rotations_alone_show_every_image_in_four_ways():
    settings = config(recipe="rotations", batch=0, rotated=3)
    model, images, labels = small_model().eval(), random_images(3), torch.tensor([0, 1, 2])
    found = loss(model, assemble(images, labels, settings, draw_mix(settings, 0, 4)), settings)
    parts = []
    for turns in range(4):
        features = model.net(torch.rot90(images, turns, (2, 3)))
        parts.append(F.cross_entropy(model.classes(features), labels))  # no label is smoothed
        parts.append(F.cross_entropy(model.rotations(features), torch.full((3,), turns)))
    torch.testing.assert_close(found, sum(parts) / 4)


def test_every_weight_gets_a_gradient_and_every_stage_its_turn_at_mixing():
    settings, model = config(batch=4, rotated=2), small_model()
    drawn = [draw_mix(settings, step, 4) for step in range(200)]
    assert {mix.stage for mix in drawn} == {0, 1, 2, 3}
    shares = np.array([mix.share for mix in drawn])
    assert abs(shares.mean() - 0.5) < 0.05
    assert abs(shares.var() - 0.05) < 0.015  # of Beta(2, 2)
    mix = drawn[0]
    loss(model, assemble(random_images(6), torch.tensor([0, 1, 2, 0, 1, 2]), settings, mix), settings).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


# Augmentation


def test_shifts_move_by_whole_pixels_and_mirror_at_the_border():
    pixels = torch.randint(256, (64, SIDE, SIDE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = augment(pixels, config(shift=2, jitter=0.0), torch.Generator().manual_seed(1))
    seen = set()
    for image, x in zip(planes(pixels).numpy(), found.numpy(), strict=True):
        padded = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode="symmetric")
        fits = [
            (down, right, mirrored)
            for down in range(5)
            for right in range(5)
            for mirrored in (False, True)
            if np.allclose(
                x, padded[:, down : down + SIDE, right : right + SIDE][:, :, :: -1 if mirrored else 1], atol=1e-4
            )
        ]
        assert len(fits) == 1
        seen.add(fits[0])
    assert {down for down, _, _ in seen} == {right for _, right, _ in seen} == set(range(5))
    assert {mirrored for _, _, mirrored in seen} == {False, True}


def test_crops_keep_to_their_area_and_aspect_and_stay_inside():
    settings = config(crop_area=[0.35, 1.0], crop_aspect=[0.75, 4 / 3])
    where = windows(torch.rand(4000, 5, generator=torch.Generator().manual_seed(0)), 96, settings)
    centre, half = where[:, :2], where[:, 2:].abs()
    assert (centre.abs() + half <= 1 + 1e-6).all()
    area, aspect = half.prod(1), half[:, 0] / half[:, 1]
    assert 0.3 < area.min() < 0.4 < 0.9 < area.max() <= 1
    assert 0.74 < aspect.min() < 0.8 < 1.28 < aspect.max() < 1.34
    assert 0.45 < (where[:, 2] < 0).float().mean() < 0.55


def test_a_crop_is_that_part_of_the_image():
    image = random_images(1)
    whole = resample(image, torch.tensor([[0.0, 0.0, 1.0, 1.0]]), SIDE)
    torch.testing.assert_close(whole, image)
    corner = resample(image, torch.tensor([[0.5, -0.5, 0.5, 0.5]]), SIDE // 2)  # right, top
    torch.testing.assert_close(corner, image[:, :, : SIDE // 2, SIDE // 2 :])


def test_recolouring_agrees_with_pillow():
    from PIL import ImageEnhance

    pixels = torch.randint(30, 120, (1, SIDE, SIDE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = recolour(planes(pixels), torch.tensor([[1.3, 0.7, 1.4]]))
    image = Image.fromarray(pixels[0].numpy())
    for kind, factor in ((ImageEnhance.Brightness, 1.3), (ImageEnhance.Contrast, 0.7), (ImageEnhance.Color, 1.4)):
        image = kind(image).enhance(factor)
    difference = 255 * found[0].permute(1, 2, 0).numpy() - np.asarray(image, dtype=np.float32)
    assert np.abs(difference).max() < 3  # Pillow rounds down after each of the three


# Averages, validation, schedule


def test_the_average_decays_with_its_statistics():
    net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
    average = Average(net, 0.5)
    before = average.state()
    with torch.no_grad():
        for value in (*net.parameters(), net[1].running_mean, net[1].running_var):
            value.add_(1.0)
    average.update(1000)
    after = average.state()
    for name in before:
        if before[name].is_floating_point():
            torch.testing.assert_close(after[name], before[name] + 0.5)
    early = Average(net, 0.999)  # the first steps forget faster: (1 + 0) / (10 + 0) of the start stays
    with torch.no_grad():
        net[0].weight.add_(1.0)
    early.update(0)
    torch.testing.assert_close(early.net[0].weight, net[0].weight - 0.1)


def test_recalibration_sets_mean_and_variance_of_the_batches():
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5)).eval()
    net[0].running_mean.fill_(9.0)
    x = torch.randn(40, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    recalibrate(net, [x[:20], x[20:]])
    torch.testing.assert_close(net[0].running_mean, x.mean((0, 2, 3)))
    torch.testing.assert_close(net[0].running_var, (x[:20].var((0, 2, 3)) + x[20:].var((0, 2, 3))) / 2)
    assert not net[0].training
    assert net[0].momentum == 0.1


@pytest.mark.parametrize("shots", [1, 5])
def test_accuracy_is_that_of_the_prototypical_method(shots):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 25)
    features = rng.normal(size=(8, 12))[labels] + 1.5 * rng.normal(size=(200, 12))
    features = (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32)
    tasks = draw("balanced", labels, seed=0, n_way=5, n_shot=shots, n_query=15, n_tasks=150)
    predicted = create_method("prototypical").predict(tasks.batch(features)).labels
    expected = 100 * (predicted == tasks.query_labels).mean()
    assert 30 < expected < 95
    assert nearest_mean(torch.from_numpy(features), tasks) == pytest.approx(expected)


def test_embedding_averages_over_the_mirror_image():
    net = small_model().net.eval()
    pixels = torch.randint(256, (3, SIDE, SIDE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    normalise = Normalise(config(), torch.device("cpu"))
    mirrored = torch.from_numpy(pixels.numpy()[:, :, ::-1].copy())
    torch.testing.assert_close(embed(net, pixels, normalise), embed(net, mirrored, normalise))
    x = (pixels[0].permute(2, 0, 1) / 255 - torch.tensor(config().mean)[:, None, None]) / torch.tensor(config().std)[
        :, None, None
    ]
    both = net(x[None]) + net(x.flip(2)[None])
    torch.testing.assert_close(embed(net, pixels, normalise)[:1], both / both.norm())


def test_the_rate_warms_up_then_falls_by_steps_or_by_time():
    by_epochs = Schedule(config(epochs=10, warmup=10, lr=0.2, stop=0.5, evaluations=5), steps_per_epoch=10)
    assert by_epochs.lr(0, 0.0) == pytest.approx(0.02)
    assert by_epochs.lr(50, by_epochs.done(50, 0)) == pytest.approx(0.1)
    assert by_epochs.lr(100, by_epochs.done(100, 0)) == pytest.approx(0)
    assert next(step for step in range(101) if by_epochs.over(by_epochs.done(step, 0))) == 50
    assert [by_epochs.evaluations_due(by_epochs.done(step, 0)) for step in (0, 9, 10, 49, 50)] == [0, 0, 1, 4, 5]
    by_clock = Schedule(config(epochs=None, minutes=2), steps_per_epoch=10)
    assert by_clock.done(5, 60) == pytest.approx(0.5)
    plain = Schedule(config(recipe="plain", epochs=4, warmup=0), steps_per_epoch=1)
    assert [plain.lr(step, plain.done(step, 0)) for step in range(4)] == pytest.approx([0.1, 0.01, 0.001, 0.0001])


# Configurations


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.json")), ids=lambda path: path.stem)
def test_shipped_configurations_can_be_read(path):
    found = TrainConfig.read(path)
    assert found.name == path.stem
    assert TrainConfig.of(**found.as_json()) == found
    assert {view.output for view in found.views} == {found.size}


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"minutes": 1}, InputError, "epochs=1 and minutes=1"),
        ({"epochs": -1}, InputError, "epochs=-1 must be a number above 0"),
        ({"batch": 2.5}, InputError, "batch=2.5 must be a whole number"),
        ({"batch": 0, "rotated": 0, "mixup": 0}, InputError, "a step has no image"),
        ({"batch": 0}, InputError, "mixup=2.0 mixes the upright images"),
        ({"bach": 2}, UnknownNameError, "'batch'"),
        ({"recipe": "s2m3"}, UnknownNameError, "'s2m2'"),
        ({"size": 32}, InputError, "size=32 is more than the 16 pixels kept"),
        ({"views": []}, InputError, r"views=\(\) must be a list"),
        ({"average": 1.0}, InputError, "below 1"),
        ({"average": "0.9"}, InputError, "below 1"),
        ({"name": 5}, InputError, "name=5 must be a text"),
        ({"backbone": None}, InputError, "backbone=None must be a text"),
        ({"dataset": 5}, InputError, "dataset=5 must be a text"),
        ({"recipe": []}, UnknownNameError, "plain, rotations, s2m2"),
        ({"lr": None}, InputError, "lr=None must be a number"),
        ({"stop": None}, InputError, "stop=None must be a number"),
        ({"mean": None}, InputError, "mean=None must be 3 numbers"),
        ({"std": ["a", "b", "c"]}, InputError, "std=.* must be 3 positive numbers"),
        ({"crop_area": "ab"}, InputError, "crop_area='ab' must be 2 positive numbers"),
        ({"crop_aspect": [0.5, "x"]}, InputError, "crop_aspect=.* must be 2 positive numbers"),
        ({"options": []}, InputError, "options=.* must be a JSON object"),
        ({"views": "32/24"}, InputError, "views='32/24' must be a list"),
        ({"views": [5]}, InputError, "view 5 must be RESIZE/CROP"),
        ({"seed": 2**70}, InputError, "must be a whole number"),
        ({"evaluation_tasks": 10**9}, InputError, "must be a whole number from 1 to a million"),
        ({"epochs": 10**400}, InputError, "must be a number above 0, at most a million"),
        ({"lr": 1e308}, InputError, "lr=1e[+]308 must be a number above 0, below 1e38"),
        ({"options": {"seed": 1}}, InputError, "options has 'seed'"),
        ({"name": ["x"] * 10**5}, InputError, r"name=\('x', .{50,90} must be a text"),
        ({"b" * 10**5: 1}, UnknownNameError, "unknown setting 'bbb"),
    ],
)
def test_bad_settings_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        config(**settings)


BAD_FILES = {
    "[" * 10**5: "more than 64 levels deep",
    '{"epochs": ' + "9" * 5000 + "}": "a number of 5000 digits",
    '{"lr": 1e999}': "'1e999' is not finite",
    "[1]": "it holds a list; expected a JSON object",
    "": "the file must be JSON",
    '{"name": 1}': "a training configuration needs 'backbone'",
}


@pytest.mark.parametrize("text", BAD_FILES, ids=range(len(BAD_FILES)))
def test_files_that_are_not_configurations_are_named(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=rf"config\.json: .*{BAD_FILES[text]}"):
        TrainConfig.read(path)


def test_settings_under_their_former_names():
    former = {"looks": 7, "look_tasks": 30, "look_images": 40}
    others = {name: value for name, value in SETTINGS.items() if not name.startswith("evaluation")}
    found = TrainConfig.of(**others | former)
    assert (found.evaluations, found.evaluation_tasks, found.evaluation_images) == (7, 30, 40)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"views": [f"{SIDE}/{SIDE}", f"{SIDE}/1"]}, "cannot take view 16/1, 1 x 1 pixels"),
        ({"size": 1}, "cannot take size, 1 x 1 pixels"),
        ({"options": {"dropout": "x"}}, "options={'dropout': 'x'}"),
        ({"options": {"drop": 0.1}}, "unknown option"),
    ],
)
def test_sizes_and_options_that_do_not_fit_the_network_are_refused_before_training(folder, tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        train(config(**settings), load(folder, "train"), None, tmp_path, device="cpu")
    assert not list(tmp_path.iterdir())


# Whole runs


def saved_weights(out: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for path in sorted(out.glob("weights*.safetensors")):
        found |= load_file(path)
    assert found
    return found


def environment() -> dict[str, str]:
    """Of processes that import this very package."""
    paths = [str(Path(a2lp.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def seen(out: Path) -> list[tuple[int, float]]:
    evaluations = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [(found["step"], found["loss"]) for found in evaluations]


@pytest.fixture(scope="module")
def unbroken(folder, tmp_path_factory) -> Path:
    """A run of nine steps with an evaluation after each third, in this process."""
    out, before = tmp_path_factory.mktemp("unbroken"), torch.get_num_threads()
    torch.set_num_threads(1)
    train(config(options={"dropout": 0.1}), load(folder, "train"), None, out, device="cpu")
    torch.set_num_threads(before)
    return out


def test_a_run_that_was_killed_ends_with_the_same_weights(folder, unbroken, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SETTINGS | {"options": {"dropout": 0.1}}))
    program = (
        "import sys, torch; torch.set_num_threads(1)\n"
        "from a2lp.images.datasets import load; from a2lp.images.training import TrainConfig, train\n"
        "train(TrainConfig.read(sys.argv[1]), load(sys.argv[2], 'train'), None, sys.argv[3], device='cpu')\n"
    )
    out = tmp_path / "out"
    command = [sys.executable, "-c", program, str(path), str(folder), str(out)]
    run = subprocess.Popen(command, env=environment())
    deadline = time.monotonic() + 120
    while not (out / "checkpoint.pt").exists() and time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    assert not (out / "record.json").exists()

    subprocess.run(command, env=environment(), check=True)
    expected = saved_weights(unbroken)
    for name, value in saved_weights(out).items():
        assert torch.equal(value, expected[name]), name
    assert seen(out) == seen(unbroken)
    assert [step for step, _ in seen(out)] == [3, 6, 9]
    assert not (out / "checkpoint.pt").exists()


def test_a_finished_run_is_not_run_again_and_another_one_is_refused(folder, unbroken):
    base = load(folder, "train")
    before = (unbroken / "record.json").stat().st_mtime_ns
    reports = []
    result = train(config(options={"dropout": 0.1}), base, None, unbroken, device="cpu", progress=reports.append)
    assert (unbroken / "record.json").stat().st_mtime_ns == before
    assert [found.step for found in result.evaluations] == [3, 6, 9]
    assert [report.note for report in reports] == ["checking the images"]
    with pytest.raises(InputError, match=r"of another run: its lr is 0\.1, and this one's is 0\.05"):
        train(config(lr=0.05, options={"dropout": 0.1}), base, None, unbroken, device="cpu")


def test_other_images_are_another_run(folder, unbroken, tmp_path):
    other = tmp_path / folder.name
    shutil.copytree(folder, other)
    one, two = other / "train" / "train0" / "0.png", other / "train" / "train1" / "0.png"
    pixels = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(pixels)
    with pytest.raises(InputError, match="of another run: its base_sha256 is"):
        train(config(options={"dropout": 0.1}), load(other, "train"), None, unbroken, device="cpu")


def test_records_and_checkpoints_of_earlier_versions_are_read(folder, unbroken, tmp_path):
    """Their name for evaluations is ``looks``."""
    for path in sorted((ROOT / "trained").glob("*/record.json")):
        record = read_record(path)
        lines = path.with_name("log.jsonl").read_text().splitlines()
        assert record["evaluations"] == [json.loads(line) for line in lines]
        assert TrainConfig.of(**record["config"]).evaluation_tasks == 1000
    former = {"evaluations": "looks", "evaluation_tasks": "look_tasks", "evaluation_images": "look_images"}

    def renamed(content):
        names = content.items() if isinstance(content, dict) else ()
        return {former.get(name, name): renamed(value) for name, value in names} if names else content

    for path in unbroken.iterdir():
        shutil.copy(path, tmp_path)
    record = json.loads((unbroken / "record.json").read_text())
    (tmp_path / "record.json").write_text(json.dumps(renamed(record)))
    settings, base, reports = config(options={"dropout": 0.1}), load(folder, "train"), []
    assert "looks" in json.loads((tmp_path / "record.json").read_text())["config"]
    found = train(settings, base, None, tmp_path, device="cpu", progress=reports.append)
    assert [evaluation.step for evaluation in found.evaluations] == [3, 6, 9]
    assert [report.note for report in reports] == ["checking the images"]  # it is not run again

    identity = {"config": settings.as_json(), "data": record["data"]}
    weights, state = {"a": torch.ones(2)}, RunState(3, 1.0, 3, list(found.evaluations[:1]), None, {"a": torch.ones(2)})
    checkpoint.write(tmp_path, identity, state, {})
    content = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    content["identity"] = json.dumps(renamed(json.loads(content["identity"])))
    content["progress"]["looks"] = content["progress"].pop("evaluations")
    torch.save(content, tmp_path / "checkpoint.pt")
    again, _ = checkpoint.read(tmp_path, identity, weights, torch.device("cpu"))
    assert again.evaluations == state.evaluations
    assert again.step == 3


def test_a_checkpoint_that_is_not_of_this_network_is_named(folder, tmp_path):
    base = load(folder, "train")
    identity = {"config": config().as_json(), "data": {"base": f"{base.name}: 72 images, 6 classes"}}
    identity["data"] |= {"base_sha256": base.fingerprint(), "val": None}
    run = Run(config(), base, None, torch.device("cpu"), 1)
    for change, message in [
        ({"model": {}}, "tensors.model does not have the entries"),
        ({"optimizer": {}}, "optimizer does not have the entries `state`, `param_groups`"),
        ({"averages": []}, "tensors.averages is not a list of 1"),
        ({"loss_sum": torch.tensor(float("nan"))}, "tensors.loss_sum has values that are not finite"),
    ]:
        checkpoint.write(tmp_path, identity, RunState(), run.tensors() | change)
        with pytest.raises(WeightsFileError, match=rf"checkpoint\.pt: {message}"):
            train(config(), base, None, tmp_path, device="cpu")


def test_the_commit_can_be_given(folder, tmp_path):
    """The machine that trains may have no checkout."""
    settings, base = config(epochs=0.2, evaluations=1), load(folder, "train")
    commit = "0123456789abcdef0123456789abcdef01234567"
    record = train(settings, base, None, tmp_path / "given", device="cpu", commit=commit).record
    assert json.loads((tmp_path / "given" / "record.json").read_text())["commit"] == record["commit"] == commit
    assert train(settings, base, None, tmp_path / "found", device="cpu").record["commit"] == package_commit()
    with pytest.raises(InputError, match=r"commit='main' must be a hash of git"):
        train(settings, base, None, tmp_path / "wrong", device="cpu", commit="main")


def test_a_record_without_its_weights_is_not_a_finished_run(folder, unbroken, tmp_path):
    shutil.copy(unbroken / "record.json", tmp_path)
    with pytest.raises(InputError, match="its weights are missing"):
        train(config(options={"dropout": 0.1}), load(folder, "train"), None, tmp_path, device="cpu")


@pytest.mark.parametrize("name", ["weights.safetensors", "weights-00001-of-00003.safetensors", "log.jsonl"])
def test_files_of_other_runs_are_not_replaced(folder, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"holds {name}, which is not of this run"):
        train(config(), load(folder, "train"), None, tmp_path, device="cpu")
    assert (tmp_path / name).read_text() == "mine"


def test_the_last_evaluation_is_made_though_a_checkpoint_takes_the_rest_of_the_time(folder):
    settings, state = config(epochs=None, minutes=0.02, evaluations=1), RunState()
    run = Run(settings, load(folder, "train"), None, torch.device("cpu"), 1)
    steps_loop(run, state, lambda: time.sleep(1.5), lambda report: None)
    assert [found.step for found in state.evaluations] == [state.step]


def test_the_checkpoint_of_a_finished_run_is_removed(folder, unbroken):
    (unbroken / "checkpoint.pt").write_text("left by a kill after the record was written")
    train(config(options={"dropout": 0.1}), load(folder, "train"), None, unbroken, device="cpu")
    assert not (unbroken / "checkpoint.pt").exists()


def test_incomplete_checkpoints_of_killed_runs_are_removed(folder, unbroken, tmp_path):
    (tmp_path / ".checkpoint.pt.123.tmp").write_text("half")
    train(config(options={"dropout": 0.1}), load(folder, "train"), None, tmp_path, device="cpu")
    assert seen(tmp_path) == seen(unbroken)
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_is_named(folder, tmp_path):
    """The limit on the size of files stands for it: the checkpoint is the first that is larger."""
    program = (
        "import resource, signal, sys, torch; torch.set_num_threads(1)\n"
        "from a2lp.errors import A2LPError\n"
        "from a2lp.images.datasets import load; from a2lp.images.training import TrainConfig, train\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20,) * 2)\n"
        "try: train(TrainConfig.read(sys.argv[1]), load(sys.argv[2], 'train'), None, sys.argv[3], device='cpu')\n"
        "except A2LPError as error: print(error)\n"
    )
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SETTINGS))
    command = [sys.executable, "-c", program, str(path), str(folder), str(tmp_path / "out")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert "checkpoint.pt cannot be written" in done.stdout
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_loss_falls(folder, tmp_path, precision):
    settings = config(
        recipe="plain", batch=24, rotated=0, epochs=5, lr=0.02, schedule="cosine", precision=precision, jitter=0.0
    )
    result = train(settings, load(folder, "train"), None, tmp_path, device="cpu")
    losses = [found.loss for found in result.evaluations]
    assert losses[0] > losses[-1]
    assert losses[-1] < 0.7 * np.log(6)
    assert result.record["precision"] == precision


def test_divergence_is_an_error(folder, tmp_path):
    with pytest.raises(A2LPError, match=r"the loss is (nan|inf) after step"):
        train(config(lr=1e30, warmup=0, evaluations=1), load(folder, "train"), None, tmp_path, device="cpu")


def test_too_few_images_for_a_step(folder, tmp_path):
    with pytest.raises(InputError, match="has 72 images and a step draws 102"):
        train(config(batch=100), load(folder, "train"), None, tmp_path, device="cpu")


def test_a_worse_evaluation_does_not_replace_the_best(folder):
    run = Run(config(recalibrate=1), load(folder, "train"), load(folder, "val"), torch.device("cpu"), 1)
    run.step(0, 0.01)
    state, averaged = RunState(step=1), run.averages[0].state()
    first = evaluate(run, state, 0.01)
    for name, value in run.averages[0].state().items():
        assert torch.equal(value, averaged[name]), name  # trying other statistics leaves the average as it is
    kept = state.best_state
    with torch.no_grad():
        for parameter in run.averages[0].net.parameters():
            parameter.zero_()
    state.step += 1
    second = evaluate(run, state, 0.01)
    assert (first.best, second.best) == (True, False)
    assert first.one_shot > second.one_shot == pytest.approx(20)
    assert state.best_state is kept


def test_of_two_averages_the_better_is_kept(folder):
    settings = config(recalibrate=0, average=[0.0, 0.9])
    run = Run(settings, load(folder, "train"), load(folder, "val"), torch.device("cpu"), 1)
    run.step(0, 0.01)
    slow = run.averages[1].state()
    with torch.no_grad():
        for parameter in run.averages[0].net.parameters():
            parameter.zero_()
    state = RunState(step=1)
    assert evaluate(run, state, 0.01).decay == 0.9
    for name, value in slow.items():
        assert torch.equal(value, state.best_state[name]), name


def test_from_images_to_features_without_a_terminal(folder, tmp_path, monkeypatch):
    """The whole way as a program, on a schedule by the clock: validation, best snapshot, view, embedded splits."""
    monkeypatch.setenv("A2LP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path, out = tmp_path / "config.json", tmp_path / "out"
    views = [f"{SIDE}/{SIDE}", f"{SIDE}/12/{SIDE}"]
    path.write_text(json.dumps(SETTINGS | {"views": views, "recalibrate": 2, "evaluations": 2, "std": [0.5, 0.5, 0.5]}))
    command = [sys.executable, "-m", "a2lp.images.training", str(path), "--data", str(folder), "--out", str(out)]
    commit = ["--commit", "0123456-dirty"]
    done = subprocess.run(
        [*command, *commit, "--minutes", "0.05"], env=environment(), capture_output=True, text=True, check=True
    )
    record = json.loads((out / "record.json").read_text())
    evaluations = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert record["evaluations"] == evaluations
    assert record["config"]["minutes"] == 0.05
    assert record["commit"] == "0123456-dirty"
    assert 3 <= record["seconds"] < 60
    scores = [found["one_shot"] + found["five_shot"] for found in evaluations]
    assert record["best"] == evaluations[int(np.argmax(scores))]
    assert set(record["views"]) == set(views)
    assert record["view"] == max(views, key=lambda view: sum(record["views"][view].values()))
    assert done.stdout.count("step") == len(evaluations)

    (out / "test_base.npz").rename(tmp_path / "base.npz")
    (out / "test.npz").rename(out / "test_base.npz")  # of another run
    refused = subprocess.run([*command, "--minutes", "0.05"], env=environment(), capture_output=True, text=True)
    assert refused.returncode == 2
    assert "test_base.npz exists already" in refused.stderr
    (out / "test_base.npz").unlink()
    (out / "val.npz").unlink()  # as after a kill: made again from the cache, beside the statistics that are there
    subprocess.run([*command, "--minutes", "0.05"], env=environment(), capture_output=True, text=True, check=True)
    backbone = create("resnet12_512", out / "weights.safetensors")
    assert (backbone.view, backbone.std) == (View.parse(record["view"]), (0.5, 0.5, 0.5))
    val = load_features(out / "val.npz")
    assert val.features.dtype == np.float16
    assert [len(load_features(out / f"{split}.npz")) for split in ("train", "val", "test")] == [72, 100, 100]
    # what was validated is what was embedded: the same tasks on the file give the same accuracy
    tasks = draw("balanced", val.labels, seed=0, n_way=5, n_shot=1, n_query=15, n_tasks=20)
    features = F.normalize(torch.from_numpy(val.features.astype(np.float32)), dim=1)
    assert nearest_mean(features, tasks) == pytest.approx(record["views"][record["view"]]["one"], abs=0.3)


def test_the_command_shows_each_evaluation_and_what_to_do_next(folder, tmp_path):
    app = typer.Typer()
    app.command()(command)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SETTINGS | {"evaluations": 2}))
    arguments = [str(path), "--data", str(folder), "--out", str(tmp_path / "out"), "--device", "cpu"]
    arguments += ["--commit", "0123abcd"]
    done = CliRunner().invoke(app, [*arguments, "--epochs", "0.5"])
    assert done.exit_code == 0, done.output
    assert done.stderr.count("on validation classes") == 2
    assert "a2lp embed" in done.stderr
    assert "weights.safetensors" in done.stdout
    assert "--flip" not in done.stderr  # it is the default
    record = json.loads((tmp_path / "out" / "record.json").read_text())
    assert record["config"]["epochs"] == 0.5
    assert record["commit"] == "0123abcd"
    wrong = CliRunner().invoke(app, [*arguments, "--epochs", "1", "--minutes", "1"])
    assert isinstance(wrong.exception, InputError)


def test_the_curve_rises_with_accuracy():
    first = Evaluation(1, 1.0, 1.0, 1, 1.0, 0.1, 40.0, 60.0, "averaged", True)
    others = [replace(first, one_shot=45.0, five_shot=80.0), replace(first, one_shot=50.0, five_shot=70.0)]
    assert curve([first, *others]).splitlines() == ["1-shot ▁▅█ 50.00 (best 50.00)", "5-shot ▁█▅ 70.00 (best 80.00)"]
    assert curve([]) == ""


def test_steps_are_a_function_of_the_seed(folder, unbroken, tmp_path):
    other = config(options={"dropout": 0.1}, seed=1)
    train(other, load(folder, "train"), None, tmp_path, device="cpu")
    same = [torch.equal(value, saved_weights(unbroken)[name]) for name, value in saved_weights(tmp_path).items()]
    assert not any(same)

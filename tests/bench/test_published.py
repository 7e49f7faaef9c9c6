from __future__ import annotations

import math
import re

import pytest

from a2lp.bench import published
from a2lp.bench.published import FeatureSource, feature_source

TEX_NAMES = {"mini": "mini", "tiered": "tiered", "CIFAR-FS": "cifar_fs", "CUB": "cub"}
TEX_BACKBONES = {"ResNet-12": "resnet12", "WideResNet-28-10": "wrn28_10"}


def plain(label: str) -> str:
    label = re.sub(r"\\cite\{\w+\}", "", label.replace(r"\aalp", "A2LP"))
    return re.sub(r"\\emph|[~$^_{}]", "", label).strip()


def tables_of(tex: str) -> list[dict[tuple[str, str, str, int], tuple[float, float | None]]]:
    """The numbers as they stand in the paper's source: by network, label, dataset and shots."""
    found = []
    for body in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", tex, re.DOTALL):
        head = body.split(r"\cmidrule")[0]
        datasets = [
            TEX_NAMES[name.removesuffix("ImageNet")]
            for name in re.findall(
                r"\\mc\{2\}\{\\Th\{(.*?)\}\}(?:\s|$)",
                head.replace(r"\emph{mini}", "mini").replace(r"\emph{tiered}", "tiered"),
            )
        ]
        numbers, backbone = {}, ""
        for line in body.splitlines():
            heading = re.search(r"\\mc\{[59]\}\{\\Th\{(.*?)\}\}", line)
            if heading:
                backbone = TEX_BACKBONES[heading[1]]
            values = re.findall(r"(\d\d\.\d\d)\}?\s*\\(?:ci\{(\d\.\d\d)\}|cip)", line)
            if not values:
                continue
            assert len(values) == 2 * len(datasets), line
            places = [(dataset, shots) for dataset in datasets for shots in (1, 5)]
            for place, (mean, ci95) in zip(places, values, strict=True):
                numbers[backbone, plain(line.split("&")[0]), *place] = (float(mean), float(ci95) if ci95 else None)
        found.append(numbers)
    return found


@pytest.mark.shared
def test_every_number_is_the_papers(shared_data):
    tex = (shared_data.parent / "paper" / "a2lp.tex").read_text(encoding="utf-8")
    theirs = tables_of(tex)
    assert [len(table) for table in theirs] == [64, 16, 36]
    for number, table in enumerate(theirs, start=1):
        ours = {
            (row.backbone, row.label, source.dataset, shots): (mean, None if math.isnan(ci95) else ci95)
            for row in published.rows()
            if row.table == number
            for (source, shots), (mean, ci95) in row.accuracy.items()
        }
        assert ours == table


def test_the_tables_agree_with_each_other_and_with_what_the_paper_says_of_them():
    for row in published.rows():
        if row.table == 3 and row.method is not None:
            assert row.accuracy.items() <= published.accuracy(row.method, row.preprocess).items()
    by_method = {m: published.accuracy(m, "l2") for m in published.METHODS}
    assert all(len(numbers) == 8 * len(published.BACKBONES) for numbers in by_method.values())
    for place, best in by_method["a2lp"].items():
        assert best.mean > max(by_method[m][place].mean for m in ("prototypical", "imprinting", "lp"))
    cub = [published.accuracy(m, "l2")[FeatureSource("cub", "resnet12"), 1].mean for m in ("a2lp", "lp")]
    assert cub[0] - cub[1] > 7
    assert all(0.1 < ci95 < 1 for row in published.rows() for _, ci95 in row.accuracy.values() if not math.isnan(ci95))


def test_footnotes():
    used = {key: row.label for row in published.rows() for key in row.notes}
    assert used == {"balanced": "LR+ICI", "dpgn": "DPGN", "laplacianshot": "LaplacianShot"}
    assert set(published.document()["notes"]) == set(used)
    corrected = [float(x) for x in re.findall(r"\d\d\.\d\d", published.document()["notes"]["laplacianshot"])]
    [quoted] = [row.accuracy for row in published.rows() if row.label == "LaplacianShot"]
    assert len(corrected) == 4
    assert all(a < b.mean for a, b in zip(corrected, quoted.values(), strict=True))
    assert "PT-MAP" in published.document()["remarks"]["3"]


@pytest.mark.parametrize(
    ("name", "about", "found"),
    [
        ("cub_resnet12_test", {}, FeatureSource("cub", "resnet12")),
        ("mini_imagenet_wrn28_10_novel", {}, FeatureSource("mini", "wrn28_10")),
        ("cifar_fs_WideResNet-28-10_test", {}, FeatureSource("cifar_fs", "wrn28_10")),
        ("tiered_timm:resnet50_test", {}, FeatureSource("tiered", "timm:resnet50")),
        ("cub", None, FeatureSource("cub", "resnet12")),  # bundled: it says so itself
        (
            "x",
            {"dataset": "miniImageNet", "backbone": "ResNet-12, ours", "split": "test"},
            FeatureSource("mini", "resnet12"),
        ),
        ("cub_test", {"backbone": "resnet12_512", "split": "test"}, FeatureSource("cub", "resnet12")),
        ("cub_resnet12_test", {"split": "val"}, None),  # what a file says goes before its name
        ("cub_resnet12_val", {}, None),
        ("cub_resnet12_test_base", {}, None),
        ("cub_resnet12", {}, None),
        ("cubism_resnet12_test", {}, None),
        ("fc100_resnet12_test", {}, None),
        ("digits", None, None),
        ("cub_resnet120_test", {}, FeatureSource("cub", "resnet120")),
        ("mini_resnet12+resnet12_test", {}, FeatureSource("mini", "resnet12+resnet12")),
        (
            "x",
            {"dataset": "cub", "backbone": "WRN-28-10+ResNet-12", "split": "test"},
            FeatureSource("cub", "resnet12+wrn28_10"),
        ),
        (
            "x",
            {"dataset": "cub", "backbone": "ResNet-12 + dropout", "split": "test"},
            FeatureSource("cub", "resnet12"),
        ),
    ],
)
def test_sets_are_known_by_what_they_say_or_by_name(name, about, found):
    assert feature_source(name, about) == found


def test_titles_of_ensembles():
    assert FeatureSource("cub", "resnet12+resnet12+resnet12").title == "CUB, 3 x ResNet-12"
    assert FeatureSource("cub", "resnet12+wrn28_10").title == "CUB, ResNet-12 + WideResNet-28-10"


def test_novel_classes_are_as_many_as_in_the_standard_splits():
    splits = pytest.importorskip("a2lp.images.datasets.splits")
    names = {"mini": "mini_imagenet", "tiered": "tiered_imagenet"}
    found = {name: len(splits.standard(names.get(name, name)).classes["test"]) for name in published.DATASETS}
    assert found == published.NOVEL_CLASSES

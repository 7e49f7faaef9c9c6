from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from a2lp.errors import InputError
from a2lp.features import BaseStatistics, FeatureSet, join, load, save
from a2lp.features.joining import join_files

FILES = ("auk/1.png", "auk/2.png", "wren/1.png", "wren/2.png", "tern/1.png")
CLASSES = [file.split("/")[0] for file in FILES]


def network(d: int, order: list[int], **more: Any) -> tuple[FeatureSet, BaseStatistics]:
    """Features of FILES in some order, and statistics of other vectors; both far from the origin."""
    rng = np.random.default_rng(d)
    base = BaseStatistics.of(rng.normal(4, 1, (30, d)), np.arange(30) % 3)
    vectors = rng.normal(5, 2, (5, d)).astype(np.float16)
    fields: dict[str, Any] = {"labels": CLASSES, "files": FILES} | more
    for name in ("labels", "files"):
        if fields[name] is not None:
            fields[name] = [fields[name][row] for row in order]
    about = {"backbone": f"net{d}", "dataset": "birds", "split": "test"}
    return FeatureSet(vectors[order], name=f"birds_net{d}_test", about=about, **fields), base


def test_an_inner_product_is_the_sum_of_the_cosines_about_the_base_means() -> None:
    """Whatever the order of the rows in the files: the images of the first decide."""
    (one, base1), (two, base2), (three, base3) = (
        network(3, [0, 1, 2, 3, 4]),
        network(7, [4, 2, 0, 1, 3]),
        network(5, [1, 0, 4, 3, 2]),
    )
    found = join([one, two, three], [base1, base2, base3])
    assert found.features.shape == (5, 15)
    assert found.features.dtype == np.float16
    assert found.files == FILES
    assert found.label_values == CLASSES
    expected = np.zeros((5, 5))
    for member, base in ((one, base1), (two, base2), (three, base3)):
        for i, a in enumerate(FILES):
            for j, b in enumerate(FILES):
                x, y = (member.features[member.files.index(file)] - base.mean.astype(np.float64) for file in (a, b))
                expected[i, j] += x @ y / np.sqrt((x @ x) * (y @ y))
    exact = found.features.astype(np.float64)
    np.testing.assert_allclose(exact @ exact.T, expected, atol=3e-3)
    assert found.about["backbone"] == "net3+net7+net5"
    assert (found.about["dataset"], found.about["split"]) == ("birds", "test")
    assert [member["name"] for member in found.about["joined"]] == [one.name, two.name, three.name]


def test_without_names_equal_labels_show_the_order() -> None:
    (one, base1), (two, base2) = (network(d, [0, 1, 2, 3, 4], files=None) for d in (3, 7))
    named, _ = network(7, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(
        join([one, two], [base1, base2]).features, join([one, named], [base1, base2]).features
    )


@pytest.mark.parametrize(
    ("order", "more", "message"),
    [
        ([4, 2, 0, 1, 3], {"files": None}, "nothing shows which rows are of one image"),
        ([0, 1, 2, 3, 4], {"files": None, "labels": None}, "nothing shows which rows are of one image"),
        ([0, 1, 2, 3], {}, "1 image of one are not in the other: 'birds_net7_test' lacks 'tern/1.png'"),
        ([0, 1, 2, 3, 4], {"files": (*FILES[:4], "tern/2.png")}, "2 images of one are not in the other"),
        ([0, 1, 2, 3, 3], {}, "'birds_net7_test' has 'wren/2.png' 2 times"),
        ([4, 2, 0, 1, 3], {"labels": ["auk", "auk", "wren", "auk", "tern"]}, "'wren/2.png' is of class 'wren' in"),
    ],
)
def test_rows_that_do_not_match_are_refused(order: list[int], more: dict[str, Any], message: str) -> None:
    (one, base1), (two, base2) = network(3, [0, 1, 2, 3, 4]), network(7, order, **more)
    with pytest.raises(InputError, match=re.escape(message)):
        join([one, two], [base1, base2])


def test_every_member_needs_statistics_of_its_own() -> None:
    (one, base1), (two, base2) = (network(d, [0, 1, 2, 3, 4]) for d in (3, 7))
    with pytest.raises(InputError, match="two or more"):
        join([one], [base1])
    with pytest.raises(InputError, match="of 1 network are given for 2 feature sets"):
        join([one, two], [base1])
    with pytest.raises(InputError, match="have 7 dimensions and its features 3"):
        join([one, two], [base2, base1])


def test_files_and_the_statistics_beside_them(tmp_path: Path) -> None:
    paths = []
    for d in (3, 7):
        features, base = network(d, [0, 1, 2, 3, 4])
        folder = tmp_path / f"net{d}"
        folder.mkdir()
        paths.append(folder / ("test.npz" if d == 7 else f"{features.name}.npz"))
        save(features, paths[-1])
        base.save(folder / ("train_base.npz" if d == 7 else "birds_net3_train_base.npz"))
    out = tmp_path / "joined.npz"
    made = join_files(paths, out)
    members, bases = zip(*(network(d, [0, 1, 2, 3, 4]) for d in (3, 7)), strict=True)
    expected = join(members, bases)
    np.testing.assert_array_equal(load(out).features, expected.features)
    assert load(out).about["backbone"] == made.about["backbone"] == "net3+net7"
    assert BaseStatistics.load(tmp_path / "joined_base.npz").same(BaseStatistics.of(expected.features, expected.labels))
    with pytest.raises(InputError, match="--force"):
        join_files(paths, out)
    # labelled features of base classes serve, too; here those of the very images, to see that they are used
    again = join_files(paths, out, bases=paths, force=True)
    means = [BaseStatistics.of(member.features, member.labels) for member in members]
    np.testing.assert_array_equal(again.features, join(members, means).features)
    (tmp_path / "net7" / "train_base.npz").unlink()
    with pytest.raises(
        InputError, match=r"no base statistics for .*test\.npz: .* and train_base\.npz must be beside it"
    ):
        join_files(paths, out, force=True)

"""A pool in a notebook."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from sklearn.datasets import load_digits

from a2lp import Pool
from a2lp.errors import A2LPError


@pytest.fixture(scope="module")
def pool():
    digits = load_digits()
    labels = [f"<i>{digit}</i>" for digit in digits.target[:40]]
    return Pool(digits.data, [*labels, *[None] * 1757])


def test_counts_doubtful_points_and_map_are_shown_and_everything_is_escaped(pool):
    shown = pool.show(load_digits().images, n=5)
    html = shown._repr_html_()
    assert repr(shown).startswith("1,797 points, 40 labelled: 10 classes; expected accuracy")
    assert "<i>" not in html and "&lt;i&gt;7&lt;/i&gt;" in html and "<script" not in html
    doubtful = np.sort(pool.assessment.probabilities.max(axis=1)[~pool.given])[:5]
    assert re.findall(r"&gt; (\d+) %</div>", html) == [f"{100 * value:.0f}" for value in doubtful]
    predicted = [int(count.replace(",", "")) for count in re.findall(r"nums\">([\d,]+)</td></tr>", html)]
    assert sum(predicted) == 1757
    assert html.count("h0") >= 1797  # each point is a dot of the map


def test_pictures_are_those_of_the_points(pool):
    image = pytest.importorskip("PIL.Image")
    pictures = np.arange(1797)[:, None, None, None] % 251 + np.zeros((1797, 4, 6, 3), int)
    html = pool.show(pictures.astype(np.uint8), keys=[f"k{row}" for row in range(1797)], n=3, map=False).html
    cards = re.findall(r'base64,([^"]+)" alt="" title="k(\d+)"', html)
    assert len(cards) == 3 and "<svg" not in html
    for data, row in cards:
        opened = image.open(io.BytesIO(base64.b64decode(data)))
        assert opened.size == (6, 4) and opened.getpixel((5, 3)) == (int(row) % 251,) * 3


def test_files_are_shown_and_broken_ones_by_name(pool, tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (300, 200), "red").save(tmp_path / "a.jpg")
    (tmp_path / "b.jpg").write_text("no image")
    for name, found in (("a.jpg", True), ("b.jpg", False)):
        assert ("data:image/jpeg" in pool.show([tmp_path / name] * 1797, n=1, map=False).html) == found


def test_a_pool_without_labels_is_shown_too_and_lengths_are_checked(pool):
    empty = Pool(np.random.default_rng(0).normal(size=(30, 4)))
    assert repr(empty.show()) == "30 points, 0 labelled: 0 classes" and "No labels yet" in empty.show().html
    with pytest.raises(A2LPError, match="images has length 2 and the pool has 1797 points"):
        pool.show(["a", "b"])
    with pytest.raises(A2LPError, match="n=-1"):
        pool.show(n=-1)

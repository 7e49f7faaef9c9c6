"""The adapter for few-shot code in torch: the same answers as the methods themselves."""

from __future__ import annotations

from typing import Any

import pytest

from a2lp import TaskBatch, create
from a2lp.errors import InputError, ShapeError, UnknownNameError

torch = pytest.importorskip("torch")
FewShotClassifier = pytest.importorskip("a2lp.easyfsl").FewShotClassifier

METHODS = {
    "a2lp": {"steps": 10, "n_neighbors": 4},
    "lp": {"n_neighbors": 4, "preprocess": "plc"},
    "prototypical": {},
    "imprinting": {"steps": 10},
}


def task(seed: int = 0) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand((16, 3, 2, 2), generator=generator)
    return images[:6], torch.tensor([0, 1, 2, 2, 1, 0]), images[6:]


@pytest.mark.parametrize("name", METHODS)
def test_gives_what_the_method_gives(name: str) -> None:
    support, labels, query = task()
    backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 8), torch.nn.Softplus())
    classifier = FewShotClassifier(name, backbone, **METHODS[name])
    classifier.process_support_set(support, labels)
    probabilities = classifier(query)
    with torch.no_grad():
        batch = TaskBatch(backbone(support)[None], labels[None], backbone(query)[None])
    expected = create(name, **METHODS[name]).predict(batch)
    assert torch.equal(probabilities, expected.probabilities[0])
    assert torch.equal(classifier.prediction.labels, expected.labels)
    assert probabilities.shape == (10, 3)
    assert not probabilities.requires_grad
    assert classifier.is_transductive()


def test_a_new_support_set_replaces_the_last() -> None:
    classifier = FewShotClassifier("lp", torch.nn.Flatten(), n_neighbors=4)
    answers = []
    for seed in (0, 1, 0):
        support, labels, query = task(seed)
        classifier.process_support_set(support, labels)
        answers.append(classifier(query))
    assert torch.equal(answers[0], answers[2])
    assert not torch.equal(answers[0], answers[1])


def test_mistakes_are_explained() -> None:
    support, labels, query = task()
    with pytest.raises(InputError, match="Call process_support_set"):
        FewShotClassifier()(query)
    with pytest.raises(ShapeError, match=r"support images of shape \(6, 3, 2, 2\)"):
        FewShotClassifier().process_support_set(support, labels)
    with pytest.raises(UnknownNameError, match="a2lp"):
        FewShotClassifier("alp")

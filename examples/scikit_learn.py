"""Transductive estimators against scikit-learn's own, on real features: 50 species of birds, two labels each.

python examples/scikit_learn.py
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import a2lp

LABELS_PER_CLASS = 2


def main() -> None:
    birds = a2lp.load("cub")  # bundled: ResNet-12 features of 2,953 photographs
    X, y = birds.features.astype(np.float32), birds.labels
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    labelled = np.concatenate([np.flatnonzero(y == species)[:LABELS_PER_CLASS] for species in np.unique(y)])
    some = np.full(len(y), -1)  # -1 marks points without a label
    some[labelled] = y[labelled]
    rest = some < 0
    print(f"{len(labelled)} labels for {len(y)} photographs")

    # scikit-learn's classifiers see the labelled points alone
    for classifier in (KNeighborsClassifier(1), LogisticRegression(C=10, max_iter=1000)):
        right = classifier.fit(X[labelled], y[labelled]).predict(X[rest]) == y[rest]
        print(f"{type(classifier).__name__}: {right.mean():.0%}")

    # these see all points, and the labels of a few
    for classifier in (a2lp.LabelPropagationClassifier(), a2lp.PoolClassifier()):
        right = classifier.fit(X, some).transduction_[rest] == y[rest]
        print(f"{type(classifier).__name__}: {right.mean():.0%}")
    print(f"accuracy on the others, in truth: {right.mean():.0%}")
    sure = classifier.label_distributions_.max(axis=1)[rest] > 0.9
    print(f"of the {sure.sum()} with a probability above 0.9: {right[sure].mean():.0%}")


if __name__ == "__main__":
    main()

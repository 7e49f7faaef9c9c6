"""Predict the labels of texts from a few labelled ones, with embeddings from scikit-learn's TF-IDF and SVD.

    python examples/label_text.py

The corpus is synthetic: short messages to a help desk, of four kinds, with many words in common. To use a sentence
encoder instead, which gives better embeddings of real texts, replace the function ``embed``.
"""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

import a2lp

WORDS = {
    "billing": "invoice charged refund card payment amount twice bank receipt price month fee",
    "delivery": "parcel courier address late tracking box arrived damaged street neighbour shipped door",
    "login": "password account reset email locked code sign screen expired username browser link",
    "praise": "thanks great love helpful friendly quick perfect happy recommend wonderful best smile",
}
COMMON = "hello please I my the your team again order today week still need help about since could was it and"


def make_corpus(n: int, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Generate n notes and the kind of each."""
    kinds = [str(kind) for kind in rng.choice(list(WORDS), n)]
    notes = []
    for kind in kinds:
        other = str(rng.choice(list(WORDS)))
        words = [
            *rng.choice(COMMON.split(), 9),
            *rng.choice(WORDS[kind].split(), 3),
            str(rng.choice(WORDS[other].split())),
        ]
        notes.append(" ".join(rng.permutation(words)))
    return notes, kinds


def embed(notes: list[str]) -> np.ndarray:
    """Compute an embedding of 50 dimensions for each note."""
    return TruncatedSVD(50, random_state=0).fit_transform(TfidfVectorizer(sublinear_tf=True).fit_transform(notes))


def main() -> None:
    rng = np.random.default_rng(0)
    notes, kinds = make_corpus(800, rng)
    labels = [kind if i < 40 else None for i, kind in enumerate(kinds)]  # the first 40 are labelled

    result = a2lp.label(embed(notes), labels)

    print(result)
    estimate = result.assessment
    print(f"expected accuracy on the others: {estimate.accuracy:.0%} ({estimate.low:.0%} to {estimate.high:.0%})")
    right = result.table["label"][40:] == np.array(kinds[40:])
    print(f"accuracy on the others, in truth: {right.mean():.0%}")
    print("the least confident:")
    for row in sorted(result.rows(), key=lambda row: row["confidence"])[:3]:
        print(f"  {row['label']} {row['confidence']:.2f}, or {row['second']}: {notes[row['index']]}")
    # pandas.DataFrame(result.table) has all predictions as a data frame


if __name__ == "__main__":
    main()

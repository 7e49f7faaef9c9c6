"""Compare methods on the same tasks, as papers do, on the bundled features: balanced and imbalanced one-shot tasks.

python examples/compare_methods.py
"""

from __future__ import annotations

import a2lp

METHODS = ("prototypical", "lp", "a2lp_em", "proto_lp")


def main() -> None:
    birds = a2lp.load("cub")
    for sampler in ("balanced", "dirichlet"):
        tasks = a2lp.draw(sampler, birds.labels, seed=0, n_way=5, n_shot=1, n_query=15, n_tasks=100)
        batch = tasks.batch(birds.features)  # without the labels of the queries
        print(f"{sampler}, {tasks}")
        for name in METHODS:
            right = a2lp.create(name).predict(batch).labels == tasks.query_labels
            print(f"  {name}: {right.mean():.0%}")

    # the same with intervals, paired differences and ranks; with out="FOLDER" it also keeps records
    comparison = a2lp.bench.compare(methods=list(METHODS[:3]), n_shot=1, n_tasks=100)
    print(comparison)
    right = a2lp.create("a2lp_em").predict(batch).labels == tasks.query_labels
    print(f"accuracy of a2lp_em on imbalanced tasks, in truth: {right.mean():.0%}")


if __name__ == "__main__":
    main()

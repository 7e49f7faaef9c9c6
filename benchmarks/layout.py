"""How well the map of a pool keeps classes together, and how long it takes.

    .venv/bin/python benchmarks/layout.py [FEATURES.npz ...]

For each set (by default the bundled ones): the share of each point's ten nearest on the map that are of its class, in
percent, the silhouette of the classes, and the seconds after compilation; means of three seeds. The same two scores for
the first two principal components show what a map without a graph would do. Maps know no labels.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors

from a2lp import load
from a2lp.pool.layout import layout
from a2lp.pool.prepare import whitened_graph

SEEDS = range(3)


def scores(places: np.ndarray, classes: np.ndarray) -> tuple[float, float]:
    """Purity of ten neighbours in percent, and silhouette."""
    near = NearestNeighbors(n_neighbors=10).fit(places).kneighbors(return_distance=False)
    return 100 * float((classes[near] == classes[:, None]).mean()), float(silhouette_score(places, classes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", default=["digits", "cub", "cifar_fs"])
    layout(whitened_graph(np.random.default_rng(0).normal(size=(50, 4)))[2])  # compiles
    for name in parser.parse_args().sets:
        data = load(name)
        _, points, graph = whitened_graph(data.features.astype(np.float32))
        start = time.perf_counter()
        maps = [layout(graph, seed=seed) for seed in SEEDS]
        seconds = (time.perf_counter() - start) / len(SEEDS)
        ours = np.mean([scores(places, data.labels) for places in maps], axis=0)
        components = scores(PCA(2, random_state=0).fit_transform(points), data.labels)
        print(
            f"{name}: {graph.n} points, purity {ours[0]:.1f}, silhouette {ours[1]:.3f}, {seconds:.1f} s; "
            f"principal components {components[0]:.1f}, {components[1]:.3f}"
        )


if __name__ == "__main__":
    main()

"""Every training run of the networks in ``trained/``: trained/README.md, the table of docs/images.md and its curves.

    .venv/bin/python benchmarks/networks.py

A network is a dataset and a backbone, as ``cub_resnet12``. Runs whose features were kept have a folder in ``trained``;
``trained/recipes`` has the records of the others. Accuracy on novel classes is that of the records in ``results/`` that
are of the run's own features.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from figures import drawing, svg
from study import ROOT, fill, shown, table

from a2lp.bench.paper_records import select_records
from a2lp.bench.plots import COLOURS
from a2lp.bench.protocol import draw_episodes
from a2lp.bench.published import BACKBONES, DATASETS, SHOTS, FeatureSource, feature_source
from a2lp.bench.records import read_records
from a2lp.features import FeatureSet, load
from a2lp.files import write_text

TRAINED = ROOT / "trained"
TRIED = TRAINED / "recipes"
README = TRAINED / "README.md"
RESULTS = ROOT / "results"
PAGE = ROOT / "docs" / "images.md"
FIGURE = ROOT / "docs" / "assets" / "recipes.svg"
# entries of a configuration that are no part of a recipe
NO_RECIPE = {"name", "recipe", "dataset", "backbone", "options", "kept", "size", "views", "mean", "std"}
NO_RECIPE |= {"start", "teacher"}
NO_RECIPE |= {"evaluations", "evaluation_tasks", "evaluation_images", "looks", "look_tasks", "look_images"}
NO_RECIPE |= {"recalibrate", "checkpoint_seconds", "precision"}


class Run(NamedTuple):
    """The record of a training run."""

    source: FeatureSource
    name: str  # the folder in ``trained`` of one that was kept, else the file in ``trained/recipes``
    kept: bool
    record: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """What the recipe sets."""
        config = self.record["config"]
        unused = ("distil_",) if not config.get("teacher") else ()
        return {name: config[name] for name in config if name not in NO_RECIPE and not name.startswith(unused)}

    @property
    def curve(self) -> list[dict[str, Any]]:
        """The evaluations on validation classes; records of earlier versions call them looks."""
        found: list[dict[str, Any]] = self.record.get("evaluations") or self.record["looks"]
        return found


def recipe(run: Run, kept: Run) -> str:
    """The recipe of a run and the options of its network, and the settings that are not as in the run that was kept."""
    config, former = run.record["config"], kept.settings
    words = [config["recipe"], *(["distilled"] if config.get("teacher") else [])]
    words += [f"from the weights of {Path(config['start']).parent.name}"] if config.get("start") else []
    words += [f"{name} {value}" for name, value in config["options"].items() if value]
    new = {name: value for name, value in run.settings.items() if value != former.get(name) and value is not None}
    return ", ".join([*words, *(f"{name} {value}" for name, value in new.items() if value or name in former)])


def network_of(config: dict[str, Any]) -> str:
    """The name of a network from the configuration of a run."""
    return f"{config['dataset']}_{config['backbone']}"


def runs() -> list[Run]:
    """Every run, those of a network together, the one that was kept first."""
    found = []
    for path in [*sorted(TRAINED.glob("*/record.json")), *sorted(TRIED.glob("*.json"))]:
        record, kept = json.loads(path.read_text(encoding="utf-8")), path.parent != TRIED
        source = feature_source(f"{network_of(record['config'])}_test")
        assert source is not None, f"{path} is of no dataset of the paper"
        found.append(Run(source, path.parent.name if kept else path.stem, kept, record))
    order = [(dataset, backbone) for dataset in DATASETS for backbone in BACKBONES]
    return sorted(found, key=lambda run: (order.index(run.source), not run.kept))


def novel_classes(run: str) -> FeatureSet:
    """The features of novel classes of a run that was kept; those of one network are bundled."""
    path = TRAINED / run / f"{run}_test.npz"
    return load(path) if path.exists() else load(run.partition("_resnet12")[0])


def readme(text: str) -> str:
    """trained/README.md with the accuracy of the networks on novel classes."""
    records = list(read_records(RESULTS))
    rows = []
    for run in runs():
        if run.kept:
            own = draw_episodes(novel_classes(run.name), shots=(1,), n_tasks=1)[0].config["features_sha256"]
            ours = select_records(each for each in records if each.config.get("features_sha256") == own)
            accuracies = ours.accuracy("prototypical", "l2")
            cells = [accuracies.get((run.source, n_shot)) for n_shot in SHOTS]
            accuracy = " / ".join("not measured" if cell is None else shown(cell) for cell in cells)
            rows.append([f"[{run.name}]({run.name}/record.json)", accuracy])
    return fill(text, "networks", {"table": table(["run", "1-shot / 5-shot"], rows, "---")})


def page(text: str) -> str:
    """docs/images.md with the table of runs."""
    heads = ["network", "run", "recipe", "images seen", "seconds", "commit", "1-shot / 5-shot"]
    rows: list[list[str]] = []
    found = runs()
    kept = {run.source: run for run in found if run.kept}
    for run in found:
        commit, edited, _ = (run.record["commit"] or "").partition("-dirty")
        best = run.record["views"][run.record["view"]]
        rows.append(
            [
                run.source.title,
                f"**{run.name}**" if run.kept else run.name,
                recipe(run, kept.get(run.source, run)),
                f"{run.record['images'] / 1e6:.1f} M",
                f"{run.record['seconds']:.0f}",
                f"`{commit[:7]}`{', edited' if edited else ''}" if commit else "not recorded",
                f"{best['one']:.2f} / {best['five']:.2f}",
            ]
        )
    return fill(text, "networks", {"runs": table(heads, rows, "---")})


def figure() -> str:
    """Accuracy on validation classes along each run as SVG text, a panel for each network."""
    by_network: dict[FeatureSource, list[Run]] = {}
    for run in runs():
        by_network.setdefault(run.source, []).append(run)
    n_rows = -(-len(by_network) // 2)
    with drawing(10, 2.8 * n_rows) as made:
        for place, (source, found) in enumerate(by_network.items(), start=1):
            axes = made.add_subplot(n_rows, 2, place)
            for i, run in enumerate(found):
                seen = [point["images"] / 1e6 for point in run.curve]
                for shots, line, label in (("one_shot", "-", run.name), ("five_shot", "--", None)):
                    accuracy = [point[shots] for point in run.curve]
                    axes.plot(seen, accuracy, line, color=COLOURS[i % len(COLOURS)], label=label)
            axes.set(title=source.title, xlabel="images seen, millions", ylabel="accuracy, %")
            axes.legend(loc="lower right")
        return svg(made)


def main() -> None:
    for path, made in ((README, readme), (PAGE, page)):
        write_text(path, made(path.read_text(encoding="utf-8")))
    write_text(FIGURE, figure())


if __name__ == "__main__":
    main()

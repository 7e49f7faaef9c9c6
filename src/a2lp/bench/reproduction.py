"""Run all cells of the paper's tables for which there are features, as ``a2lp reproduce`` does."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

from a2lp.bench.paper_records import N_TASKS, PREPROCESS, PaperRecords, select_records
from a2lp.bench.paper_report import report_page
from a2lp.bench.paper_tables import NUMBERS, paper_table
from a2lp.bench.protocol import Cell, draw_episodes, plan
from a2lp.bench.published import METHODS, NOVEL_CLASSES, SHOTS, FeatureSource, feature_source
from a2lp.bench.records import RecordStore, read_records
from a2lp.bench.run import Progress, run
from a2lp.bench.tables import to_latex, to_markdown
from a2lp.errors import A2LPError, A2LPWarning, InputError, MissingExtraError
from a2lp.features import FeatureSet, load
from a2lp.features.bundled import BUNDLED
from a2lp.features.files import FORMATS
from a2lp.files import write_text
from a2lp.scale import Cluster

_log = logging.getLogger(__name__)


def reproduce(
    data: Sequence[str | Path] = (),
    out: str | Path = "results",
    *,
    n_tasks: int = N_TASKS,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
) -> PaperRecords:
    """Run every cell of the paper's tables for which there are features, then write the tables and a report.

    Parameters
    ----------
    data : sequence of paths
        Folders of feature files, used beside the bundled sets. A file's ``about`` has its ``dataset``, ``backbone`` and
        ``split``, or its name has them, as in ``cub_resnet12_test.npz``. Only files with all novel classes (``test`` or
        ``novel``) are used; others cause a warning.
    out : path
        The folder for records, tables and report. Cells that have a record there are not run again.
    n_tasks : int
        Tasks per cell.
    progress : callable, optional
        Called as ``progress(cell, n_done)``; a cluster has its own.
    cluster : Cluster, optional
        Runs all cells at once, on the workers of an ``a2lp.scale.Cluster``.

    Returns
    -------
    PaperRecords
        The record of each cell of the tables that has one.

    Examples
    --------
    >>> import tempfile
    >>> import a2lp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = a2lp.bench.reproduce(out=folder, n_tasks=2)  # 1000 tasks for figures that mean something
    >>> type(found).__name__
    'PaperRecords'
    """
    found = _find_features([Path(folder) for folder in data])
    store = RecordStore(out, ("tables.md", "tables.tex", "reproduction.html"))
    cells: list[Cell] = []
    for source, features in found.items():
        _log.info(f"{source.title}: {features.name}, {len(features)} vectors of {features.n_classes} classes")
        episodes = draw_episodes(features, shots=SHOTS, n_tasks=n_tasks)
        cells += plan(episodes, [(name, {}) for name in METHODS], PREPROCESS)
    run(cells, store, progress, cluster=cluster)
    records = select_records(read_records(out))
    tables = [paper_table(number, records, str(out)) for number in NUMBERS]
    for name, written in (("tables.md", to_markdown), ("tables.tex", to_latex)):
        write_text(Path(out) / name, "\n\n".join(map(written, tables)) + "\n")
    try:
        write_text(Path(out) / "reproduction.html", report_page(records, tables))
    except MissingExtraError as error:
        warnings.warn(f"no reproduction.html was written: {error}", A2LPWarning, stacklevel=2)
    return records


def _find_features(folders: Sequence[Path]) -> dict[FeatureSource, FeatureSet]:
    """The features of some folders that belong to the paper's datasets, and bundled ones for the rest."""
    found: dict[FeatureSource, FeatureSet] = {}
    for path in (path for folder in folders for path in _files(folder)):
        try:
            features = load(path)
            source = feature_source(features.name, features.about)
            if source is None:
                raise InputError(f"neither name nor about of {path} refers to novel classes of the paper's datasets.")
            novel = NOVEL_CLASSES[source.dataset]
            if features.n_classes != novel:
                classes = f"{features.n_classes} classes; {source.title} has {novel} novel ones"
                raise InputError(f"{path} has {classes}, and accuracy depends on how many.")
            if source in found:
                raise InputError(f"{path} is {source.title}, too, and {found[source].name} came first.")
        except A2LPError as error:
            warnings.warn(f"passed over: {error}", A2LPWarning, stacklevel=3)
        else:
            # a record identifies its features by their name
            found[source] = dataclasses.replace(features, name=f"{source.dataset}_{source.backbone}_test")
    for name in BUNDLED:
        bundled = feature_source(name)
        if bundled is not None and bundled not in found:
            found[bundled] = load(name)
    return found


def _files(folder: Path) -> list[Path]:
    """Feature files that may have novel classes: neither those named after another split, nor weights."""
    if not folder.is_dir():
        raise InputError(f"--data {str(folder)!r} is not a folder. Name a folder of feature files.")
    others = ("_train", "_val", "_base")
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in FORMATS and path.is_file())
    return [path for path in found if not path.stem.endswith(others) and not path.stem.startswith("weights")]

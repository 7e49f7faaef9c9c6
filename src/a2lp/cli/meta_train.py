"""``a2lp meta-train``: the trained part of a method, from features of base classes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from a2lp.cli.interrupts import interruptible
from a2lp.cli.options import option, whole_numbers
from a2lp.cli.progress import bar_on_stderr
from a2lp.cli.train import CHECKPOINT_KEPT

VAL_HELP = "Features of validation classes, to keep the weights that are best on them; else the last are kept."
SPREAD_HELP = (
    "How much of a base class's distance to the mean of all is kept; a backbone that was trained on these classes "
    "separates them too well. 1 leaves them as they are."
)


def meta_train(
    method: Annotated[str, typer.Argument(help="sib, sib_e3bm, tpn_learned, can or dpgn.", metavar="METHOD")],
    features: Annotated[str, option("Labelled features of the base classes.", "NAME|FILE")],
    out: Annotated[Path, option("The .safetensors file to write; a killed run continues.", "FILE")],
    val: Annotated[str | None, option(VAL_HELP, "NAME|FILE")] = None,
    shots: Annotated[str, option("Labelled examples per class; steps alternate between them.", "LIST")] = "1,5",
    ways: Annotated[int, option("Classes of an episode.")] = 5,
    queries: Annotated[int, option("Queries per class.")] = 15,
    spread: Annotated[float, option(SPREAD_HELP)] = 0.6,
    steps: Annotated[int | None, option("Steps of the optimizer.", show_default="the method's")] = None,
    batch: Annotated[int | None, option("Episodes of a step.", show_default="the method's")] = None,
    lr: Annotated[float | None, option("The first learning rate.", show_default="the method's")] = None,
    evaluations: Annotated[int, option("How often to validate and to write a checkpoint.")] = 10,
    seed: Annotated[int, option("Seed of the untrained head and of the episodes.")] = 0,
    force: Annotated[bool, option("Replace FILE if it is of another run.", None, "--force")] = False,
) -> None:
    """Train the part of a method that is learned from base classes.

    Use the result with --set METHOD.weights=FILE in bench, or with a2lp.create(METHOD, weights=FILE).
    """
    from a2lp.features import load
    from a2lp.meta.training import MetaConfig, train

    config = MetaConfig.of(
        method,
        shots=tuple(whole_numbers(shots, "--shots")),
        ways=ways,
        queries=queries,
        spread=spread,
        steps=steps,
        batch=batch,
        lr=lr,
        evaluations=evaluations,
        seed=seed,
    )
    with interruptible(CHECKPOINT_KEPT), bar_on_stderr() as (console, bar, task):
        bar.update(task, total=config.steps, description=method)

        def report(step: int, evaluation: object) -> None:
            bar.update(task, completed=step)
            if evaluation is not None:
                console.print(f"{method}: {evaluation}", markup=False, soft_wrap=True)

        base, validation = load(features), None if val is None else load(val)
        found = train(config, base, out, val=validation, force=force, progress=report)
    typer.echo(f"{out}: {[evaluation for evaluation in found if evaluation.best][-1]}")

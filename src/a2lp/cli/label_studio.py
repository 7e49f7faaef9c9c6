"""``a2lp label-studio``: predictions for Label Studio that learn from its annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from a2lp.cli.options import option
from a2lp.cli.pool_options import Labels, takes_images

SOURCE_HELP = "The images of the Label Studio tasks, as a folder or a feature file."
PROJECT_HELP = "The folder for labels; by default SOURCE.a2lp next to the source."


@takes_images
def label_studio(
    source: Annotated[str, typer.Argument(help=SOURCE_HELP, metavar="SOURCE")],
    labels: Labels = [],
    project: Annotated[Path | None, option(PROJECT_HELP, "DIR")] = None,
    port: Annotated[int, option("Port on 127.0.0.1; 0 for any free one.")] = 9090,
    *,
    how: Any,
) -> None:
    """Serve predictions to Label Studio, as one of its machine-learning backends.

    It learns from every annotation and predicts all tasks again. Tasks are matched by a key in their data, or by file
    name.
    """
    from a2lp.serve.run import serve_label_studio

    serve_label_studio(source, labels, how, project=project, port=port, say=typer.echo)

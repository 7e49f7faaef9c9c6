"""``a2lp serve``: label with eyes and keyboard, and see everything relabelled after each key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from a2lp.cli.options import option
from a2lp.cli.pool_options import Labels, takes_images

SOURCE_HELP = "A folder of images or a feature file (.npz, .npy, .safetensors, .parquet); none: a demo with digits."
PROJECT_HELP = "Where labels and thumbnails are kept; by default SOURCE.a2lp beside the source."


@takes_images
def serve(
    source: Annotated[str | None, typer.Argument(help=SOURCE_HELP, metavar="SOURCE")] = None,
    labels: Labels = [],
    names: Annotated[Path | None, option("A text file with the names of the classes, one a line.", "FILE")] = None,
    project: Annotated[Path | None, option(PROJECT_HELP, "DIR")] = None,
    port: Annotated[int, option("Port on 127.0.0.1; 0: that of the last time, or any that is free.")] = 0,
    no_browser: Annotated[bool, option("Only print the address.", None, "--no-browser")] = False,
    *,
    how: Any,
) -> None:
    """Label SOURCE in the browser.

    The page is served to this computer alone. Every label is on disk before it is acknowledged; stop the server at any
    time, and the same command continues.
    """
    from a2lp.serve.run import serve as run

    run(source, labels, how, names=names, project=project, port=port, browser=not no_browser, say=typer.echo)

"""``a2lp serve``: label with eyes and keyboard, and see everything relabelled after each key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from a2lp.cli.pool_options import Labels, takes_images


@takes_images
def serve(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A folder of images or a feature file (.npz, .npy, .safetensors, .parquet); none: a demo with digits.",
            metavar="SOURCE",
        ),
    ] = None,
    labels: Labels = [],
    names: Annotated[
        Path | None, typer.Option(help="A text file with the names of the classes, one a line.", metavar="FILE")
    ] = None,
    project: Annotated[
        Path | None,
        typer.Option(
            help="Where labels and thumbnails are kept; by default SOURCE.a2lp beside the source.", metavar="DIR"
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0: any that is free.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    *,
    how: Any,
) -> None:
    """Label SOURCE in the browser.

    The page is served to this computer alone. Every label is on disk before it is acknowledged; stop the server at any
    time, and the same command continues.
    """
    from a2lp.serve.run import serve as run

    run(source, labels, how, names=names, project=project, port=port, browser=not no_browser, say=typer.echo)

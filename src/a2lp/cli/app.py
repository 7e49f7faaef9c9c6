"""The ``a2lp`` command. Each subcommand imports what it needs when it runs, so that ``--help`` is quick."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from a2lp._version import __version__
from a2lp.cli.bench import bench
from a2lp.cli.classify import classify
from a2lp.cli.convert import convert
from a2lp.cli.doctor import doctor
from a2lp.cli.embed import embed
from a2lp.cli.meta_train import meta_train
from a2lp.cli.methods import methods
from a2lp.cli.reproduce import reproduce
from a2lp.cli.suggest import suggest
from a2lp.cli.sweep import sweep
from a2lp.cli.tables import tables
from a2lp.cli.train import train
from a2lp.errors import A2LPError, A2LPWarning, DatasetError


class _Group(TyperGroup):
    """Turns the errors that users can correct into one paragraph; anything else is a bug and keeps its traceback.

    Warnings of the library, and what the bench logs, are notes on stderr.
    """

    def invoke(self, ctx: Any) -> Any:
        log = logging.getLogger("a2lp.bench")
        handler = _Notes()
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default", A2LPWarning)  # each text once
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except DatasetError as error:  # shows trees of files, so its line breaks stay
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from error
        except A2LPError as error:
            _print_paragraph(f"error: {error}")
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            _print_paragraph(
                "interrupted: with --out, finished cells are kept, and the same command continues from there."
            )
            raise typer.Exit(130) from error
        finally:
            log.removeHandler(handler)


class _Notes(logging.Handler):
    """Prints what the library logs as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        _print_paragraph(f"note: {record.getMessage()}")


app = typer.Typer(
    cls=_Group,
    help="Transductive few-shot learning: label a handful, get the rest.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(classify)
app.command()(suggest)
app.command()(bench)
app.command()(methods)
app.command()(sweep)
app.command()(tables)
app.command()(reproduce)
app.command()(train)
app.command()(meta_train)
app.command()(embed)
app.command()(convert)
app.command()(doctor)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    app()


def _print_paragraph(text: str) -> None:
    typer.echo(" ".join(text.split()), err=True)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, A2LPWarning):
        _print_paragraph(f"note: {message}")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))

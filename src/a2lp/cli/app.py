"""The ``a2lp`` command. Each subcommand imports what it needs when it runs, so that ``--help`` is quick."""

from __future__ import annotations

import errno
import logging
import os
import sys
import warnings
from importlib.util import find_spec
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from a2lp._version import __version__
from a2lp.cli.bench import bench
from a2lp.cli.classify import classify
from a2lp.cli.convert import convert
from a2lp.cli.doctor import doctor
from a2lp.cli.embed import embed
from a2lp.cli.interrupts import EXIT_CODE, print_interruption, working
from a2lp.cli.label_studio import label_studio
from a2lp.cli.meta_train import meta_train
from a2lp.cli.methods import methods
from a2lp.cli.options import option
from a2lp.cli.reproduce import reproduce
from a2lp.cli.serve import serve
from a2lp.cli.suggest import suggest
from a2lp.cli.sweep import sweep
from a2lp.cli.tables import tables
from a2lp.cli.train import train
from a2lp.errors import A2LPError, A2LPWarning, DatasetError, install_command


class _PlainFlags:
    """A command whose help shows flags without a type: ``--force``, not ``--force <bool>``."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if getattr(each, "is_bool_flag", False) and each.metavar is None:
                each.metavar = ""
        return params


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    """Prints errors that users can correct as one paragraph; any other error is a bug and keeps its traceback.

    Warnings of the library, and what the bench and a cluster log, are notes on stderr.
    """

    def invoke(self, ctx: Any) -> Any:
        logs, handler = [logging.getLogger(name) for name in ("a2lp.bench", "a2lp.scale")], logging.StreamHandler()
        handler.setFormatter(logging.Formatter("note: %(message)s"))
        for log in logs:
            log.addHandler(handler)
            log.setLevel(logging.INFO)
        try:
            with working(), warnings.catch_warnings():
                warnings.simplefilter("default", A2LPWarning)  # each text once
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except A2LPError as error:
            keep_lines = isinstance(error, DatasetError)  # which shows trees of files
            typer.echo(f"error: {error}" if keep_lines else _paragraph(f"error: {error}"), err=True)
            raise typer.Exit(2) from error
        except OSError as error:
            if error.errno != errno.ENOSPC:  # of files, the library tells the name; this is what was printed
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the end
            typer.echo("error: the output cannot be written, since no space is left for it. Free some.", err=True)
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            print_interruption(error)
            raise typer.Exit(EXIT_CODE) from error
        finally:
            for log in logs:
                log.removeHandler(handler)


def _unwrapped(text: str | None) -> str:
    """A docstring with a line for each paragraph, which the terminal breaks where it ends."""
    return "\n\n".join(_paragraph(each) for each in cleandoc(text or "").split("\n\n"))


def _paragraph(text: str) -> str:
    return " ".join(text.split())


app = typer.Typer(
    cls=_Group,
    help="Transductive few-shot learning: label a handful, get the rest.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = {
    "Label your own data": (serve, suggest, classify, label_studio),
    "Reproduce and compare": (bench, methods, sweep, tables, reproduce),
    "Features, networks, this machine": (embed, convert, train, meta_train, doctor),
}
for _heading, _runs in _COMMANDS.items():
    for _run in _runs:
        app.command(cls=_Command, help=_unwrapped(_run.__doc__), rich_help_panel=_heading)(_run)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


Version = Annotated[
    bool, option("Print the version and stop.", None, "--version", callback=_print_version, is_eager=True)
]


START = """\
a2lp {version}: label a handful, get the rest.

Label your own photos (a folder) or vectors (a feature file) on a page; without SOURCE, a demo with digits:
    a2lp serve SOURCE
Or in a table, whose column `label` you fill in:
    a2lp suggest SOURCE --into labels.csv
    a2lp classify SOURCE --labels labels.csv --out out.csv
Compare methods on bundled features, or see which one to use:
    a2lp bench
    a2lp methods
All commands: a2lp --help
"""


@app.callback()
def _options(context: typer.Context, version: Version = False) -> None:
    if context.invoked_subcommand is None:
        typer.echo(START.format(version=__version__), nl=False)
        needed = {"images": ("photos", "onnxruntime"), "serve": ("the page", "starlette")}
        missing = {extra: what for extra, (what, package) in needed.items() if find_spec(package) is None}
        if missing:
            wanted = " and ".join(missing.values())
            typer.echo(f"For {wanted}, install more first: {install_command(','.join(missing))}")


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    if issubclass(category, A2LPWarning):
        typer.echo(_paragraph(f"note: {message}"), err=True)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))

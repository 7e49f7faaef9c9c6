"""``a2lp methods``: the methods, and what each assumes."""

from __future__ import annotations

import typer

from a2lp.errors import MissingExtraError, install_command


def methods() -> None:
    """List all methods, with what they assume or need in brackets, and which one to use."""
    from a2lp.methods.choice import guide
    from a2lp.methods.registry import create
    from a2lp.methods.registry import list_methods as registered

    lines = registered()
    width = max(map(len, lines))
    missing: dict[str, str] = {}  # packages, and the extra that each comes with
    for name, line in lines.items():
        try:
            method = create(name)
            held = {
                "assumes or prefers equally many queries of each class": method.uniform,
                "uses statistics of base classes": method.reads_statistics,
                "needs weights from a2lp meta-train": hasattr(method, "weights"),
            }
            notes = [note for note, holds in held.items() if holds]
        except MissingExtraError as error:
            notes = [f"needs {error.package}, which is not installed"]
            missing[error.package] = error.extra
        except Exception as error:  # a plug-in may raise any, and the list continues
            notes = [f"cannot be used: {type(error).__name__}: {error}"]
        typer.echo(f"{name:{width}}  {line}" + (f"  [{'; '.join(notes)}]" if notes else ""))
    for package, extra in missing.items():
        typer.echo(f"\nFor the methods that need {package}: {install_command(extra)}")
    typer.echo(f"\n{guide()}")

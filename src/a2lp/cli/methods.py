"""``a2lp methods``: the methods, and what each assumes."""

from __future__ import annotations

import typer


def methods() -> None:
    """List the methods, one line each; in brackets what a method assumes or needs."""
    from a2lp.methods.registry import list_methods as registered

    lines = registered()
    width = max(map(len, lines))
    for name, line in lines.items():
        notes = _assumptions(name)
        typer.echo(f"{name:{width}}  {line}" + (f"  [{'; '.join(notes)}]" if notes else ""))


def _assumptions(name: str) -> list[str]:
    """What a method with its defaults assumes; why it cannot run, where it cannot."""
    from a2lp.methods.registry import create

    try:
        method = create(name)
    except Exception as error:  # a plug-in may raise any, and the list goes on
        return [f"cannot be used: {type(error).__name__}: {error}"]
    found = {
        "assumes equally many queries of each class": method.uniform,
        "uses statistics of base classes": method.reads_statistics,
        "needs weights from a2lp meta-train": hasattr(method, "weights"),
    }
    return [note for note, holds in found.items() if holds]

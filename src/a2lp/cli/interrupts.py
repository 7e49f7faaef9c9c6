"""Ctrl-C at any moment is one line on stderr and exit code 130.

While a command works, it is a ``KeyboardInterrupt``, which closes files and workers on its way. While modules are being
imported, and after the work is done, nothing has to be closed, and an exception would be a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_CODE = 130
_working = False


def handle_interrupts() -> None:
    """Take over Ctrl-C, unless this process was started with it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def ignore_interrupts() -> None:
    """The work is done: while the interpreter shuts down, Ctrl-C would end it by a signal, as if it had failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def working() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt``."""
    global _working
    try:
        _working = True
        yield
    finally:
        _working = False


@contextmanager
def interruptible(kept: str) -> Iterator[None]:
    """Have Ctrl-C print a sentence on what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(kept) from None


def print_interruption(error: KeyboardInterrupt) -> None:
    """Say that a command was interrupted, and what is kept."""
    sys.stderr.write(f"interrupted: {error}.\n" if str(error) else "interrupted.\n")
    exec("")  # an interrupt that came through exec is remembered, and would end the process by a signal at its exit


def _interrupt(signum: int, frame: object) -> None:
    if _working:
        raise KeyboardInterrupt
    sys.stderr.write("interrupted.\n")
    sys.stderr.flush()
    os._exit(EXIT_CODE)

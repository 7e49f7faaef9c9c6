"""What tests of several commands share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import Result


@pytest.fixture
def check_refused() -> Callable[[Result, str], None]:
    """Fails unless a command has ended with exit code 2 and one line on stderr, an error that says something."""

    def check(result: Result, part: str) -> None:
        assert isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert part in result.stderr

    return check

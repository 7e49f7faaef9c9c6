"""Progress as a log file sees it."""

from __future__ import annotations

import pytest

from a2lp.cli import progress


def test_a_line_now_and_then_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.progress_of_steps() as report:
        report("looking up", 0, 3000)
        report("looking up", 3000, 3000)
        report("embedding", 0, 2000)
        for done in range(1, 2001):
            now += 0.0625  # a binary fraction, so that sums are exact
            report("embedding", done, 2000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "3000 images, 2000 of them not in the cache"
    assert lines[1] == "embedding: 160 of 2000, about 1 min 55 s left"
    assert lines[-1] == "embedding: 1920 of 2000, about 5 s left"
    assert len(lines) == 1 + 12


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0 s"), (59.7, "1 min 0 s"), (3600 + 125, "1 h 2 min")])
def test_durations(seconds: float, shown: str) -> None:
    assert progress._duration(seconds) == shown

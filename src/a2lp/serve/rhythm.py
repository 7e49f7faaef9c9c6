"""When to ask for a full answer: soon after a label, and together for labels that come faster than anybody looks."""

from __future__ import annotations

_SOON = 0.15  # seconds after a label
_QUICK = 0.25  # who labels again within these has not seen what the last label changed, and waits for no answer
_LONGEST = 2.0  # seconds from one answer to the next while labels come so quickly


class Rhythm:
    """Times are seconds of any clock."""

    def __init__(self) -> None:
        self._labelled = self._since = float("-inf")

    def labelled(self, now: float) -> float:
        """Take note of a label; the seconds to wait before an answer is asked for, unless another label comes."""
        quick = now - self._labelled < _QUICK
        self._labelled = now
        if quick:
            return min(_QUICK, max(0.0, self._since + _LONGEST - now))
        self._since = now
        return _SOON

    def asked(self, now: float) -> None:
        """Take note that an answer was asked for."""
        self._since = now

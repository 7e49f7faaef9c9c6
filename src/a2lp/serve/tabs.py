"""Open tabs of the page."""

from __future__ import annotations

import asyncio

_MOST_QUEUED = 200  # messages to a page that does not read; then it gets everything anew


class Page:
    """An open tab: messages that wait to be sent."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[str | bytes] = asyncio.Queue()
        self.missed = False

    def send(self, message: str | bytes) -> None:
        """Queue a message."""
        if self._waiting.qsize() >= _MOST_QUEUED:
            self.missed = True
        else:
            self._waiting.put_nowait(message)

    async def next(self) -> str | bytes:
        """The next message to send."""
        return await self._waiting.get()

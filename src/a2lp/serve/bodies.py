"""JSON in requests and answers."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from a2lp.errors import InputError
from a2lp.files import parse_json

_MOST = 64 << 20


async def read_body(request: Request) -> dict[str, Any]:
    """The JSON object that a request carries."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _MOST:
            raise InputError(f"the request has more than {_MOST} bytes. Send less at once.")
    body = parse_json(data.decode(errors="replace"), "the request")
    if not isinstance(body, dict):
        raise InputError("the request must be a JSON object.")
    return body


def message(status: int, text: str) -> Response:
    """An answer that says what is wrong."""
    return JSONResponse({"message": text}, status_code=status)

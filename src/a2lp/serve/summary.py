"""The state as a whole, as the page shows it: classes with their counts, accuracy, forecast, audit, doubts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from scipy.special import betaincinv

from a2lp.serve.answers import NONE
from a2lp.serve.board import (
    DOUBTFUL,
    IS_ACCEPTED,
    IS_REJECTED,
    IS_UNSEEN,
    IS_YOURS,
    NOVEL,
    UNREACHED,
    Board,
)

_PACE = 3.0, 60.0  # seconds per label: before the user's own pace is known; and from which a gap was a pause


def state(board: Board) -> dict[str, Any]:
    """What ``/api/state`` sends, without the phase."""
    counted = {bit: int((board.flags & bit > 0).sum()) for bit in (1 << place for place in range(8))}
    return {
        "n": len(board),
        "seq": board.seq,
        "classes": _class_table(board),
        "accuracy": board.accuracy,
        "curve": board.project.curve,
        "forecast": _forecast(board),
        "audit": _audit(board),
        "suggestions": [one for one in board.suggestions if board.kind[one["row"]] == 0],
        "doubtful_labels": _doubtful_labels(board),
        "unseen_mass": board.unseen,
        "settling": board.settling,
        "counts": {
            "yours": counted[IS_YOURS],
            "accepted": counted[IS_ACCEPTED],
            "unseen": counted[IS_UNSEEN],
            "rejected": counted[IS_REJECTED],
            "doubtful": counted[DOUBTFUL],
            "none": counted[NOVEL],
            "unreached": counted[UNREACHED],
        },
        "can_undo": board.labels.last_done() is not None,
        "can_redo": board.labels.last_undone() is not None,
        "solves": board.solves,
    }


def _class_table(board: Board) -> list[dict[str, Any]]:
    kinds = {}
    for name, bit in (("yours", IS_YOURS), ("accepted", IS_ACCEPTED), ("unseen", IS_UNSEEN), ("predicted", 0)):
        of = board.classes[(board.kind == bit) & (board.classes != NONE)]
        kinds[name] = np.bincount(of, minlength=len(board.labels.classes)).tolist()
    return [
        {"id": code, "name": info.name, "pin": info.pin, "gone": info.gone}
        | {name: counts[code] for name, counts in kinds.items()}
        for code, info in enumerate(board.labels.classes)
    ]


def _doubtful_labels(board: Board) -> list[dict[str, Any]]:
    return [
        {"row": row, "label": board.anchors[row], "instead": other, "probability": round(probability, 4)}
        for row, other, probability in board.doubted
        if row in board.anchors and board.anchors[row] != other
    ]


def _forecast(board: Board) -> dict[str, Any] | None:
    n = len(board.suggestions)
    if board.expected is None or n == 0:
        return None
    times = [line["t"] for line in board.project.log.lines[-60:] if line["op"] in ("label", "accept", "reject")]
    gaps = [gap for gap in np.diff(times) if gap < _PACE[1]]
    pace = float(np.median(gaps)) if len(gaps) >= 5 else _PACE[0]
    return {"n": n, "gain": board.expected, "seconds": round(n * pace, 1)}


def _audit(board: Board) -> dict[str, Any] | None:
    """The last audit: how many of its points were labelled, how many predictions were right, and the interval."""
    lines = [line for line in reversed(board.project.log.lines) if line["op"] == "audit_start"]
    start = next((line for line in lines if board.labels.active(line["seq"])), None)
    if start is None:
        return None
    root = [info.root for info in board.labels.classes]
    outcome: Counter[bool] = Counter()
    left = []
    for key, predicted in zip(start["keys"], start["predicted_class"], strict=True):
        row = board.labels.row_of.get(key)
        mark = None if row is None else board.labels.marks.get(row)
        if mark is not None and mark.how == "audit" and mark.seq > start["seq"]:
            outcome[predicted is not None and mark.code >= 0 and root[mark.code] == root[predicted]] += 1
        elif row is not None and mark is None:
            left.append(row)
    n, right = outcome.total(), outcome[True]
    low, high = exact_interval(right, n)
    about = {"n": n, "right": right, "low": low, "high": high, "target": len(start["keys"])}
    return about | {"seq": start["seq"], "rows": left}


def exact_interval(right: int, n: int) -> tuple[float, float]:
    """The 95 % interval of Clopper and Pearson for a share of which ``right`` in ``n`` were seen."""
    tail = 0.025
    low = float(betaincinv(right, n - right + 1, tail)) if right else 0.0
    high = float(betaincinv(right + 1, n - right, 1 - tail)) if right < n else 1.0
    return low, high

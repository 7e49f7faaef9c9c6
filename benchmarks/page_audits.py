"""What the labelling page promises about accuracy, against the truth: 200 simulated users on three held-out pools.

    .venv/bin/python benchmarks/page_audits.py --measure --data FOLDER   # then docs/serve.md
    .venv/bin/python benchmarks/page_audits.py                           # docs/serve.md from the record

FOLDER holds the feature files named below. Each user has a random half of a pool's classes, follows the queue for a
random number of labels (20 to 200), and then

- **audits** 30 random points whose prediction is hidden, as the page's button does. The interval is right where it
  contains the accuracy on all points without a label at that moment;
- reads the **forecast** of what the next 20 suggestions bring, and labels them. It is right where the gain that was
  seen is at least half and at most twice the forecast.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from study import RECORDS, ROOT, Record, fill, table

import a2lp
from a2lp.files import write_text
from a2lp.serve.summary import exact_interval

RECORD = RECORDS / "page_audits.json"
PAGE = ROOT / "docs" / "serve.md"
POOLS = {
    "cub_resnet12_test": "CUB test, ResNet-12",
    "clip_vitb_oxford_pets_test": "Oxford Pets, CLIP",
    "clip_vitb_dtd_test": "DTD test, CLIP",
}
USERS = {"cub_resnet12_test": 67, "clip_vitb_oxford_pets_test": 67, "clip_vitb_dtd_test": 66}
AUDITED, NEXT = 30, 20
FEWEST, MOST = 20, 200  # labels before the audit
Array = np.ndarray[Any, Any]


def right(pool: a2lp.Pool, truth: Array) -> float:
    """The share of the unlabelled points that are right."""
    return float((pool.answer.labels == truth)[~pool.given].mean())


def user(x: Array, truth: Array, rng: np.random.Generator) -> dict[str, Any]:
    """One user: what was promised, and what was so."""
    some = rng.permutation(truth.max() + 1)[: (truth.max() + 1) // 2]
    kept = np.isin(truth, some)
    pool, truth = a2lp.Pool(x[kept], seed=int(rng.integers(1 << 30))), truth[kept]
    labels = int(rng.integers(FEWEST, MOST + 1))
    while (count := min(NEXT, labels - int(pool.given.sum()))) > 0:
        rows = pool.suggest(count).rows
        pool.label(rows, truth[rows], "suggested")
    if len(set(truth[pool.given])) < 2:
        return {}
    before = right(pool, truth)
    drawn = rng.choice(np.flatnonzero(~pool.given), AUDITED, replace=False)
    hits = int((pool.answer.labels == truth)[drawn].sum())
    low, high = exact_interval(hits, AUDITED)
    worth = pool.assessment
    found = pool.suggest(NEXT)
    forecast = found.expected or 0.0
    pool.label(found.rows, truth[found.rows], found.how)
    return {
        "labels": labels,
        "accuracy": round(before, 4),
        "audit": [round(low, 4), round(high, 4)],
        "estimate": [round(value, 4) for value in (worth.accuracy, worth.low, worth.high)],
        "forecast": round(forecast, 4),
        "gain": round(right(pool, truth) - before, 4),
    }


def users(path: Path, n: int) -> list[dict[str, Any]]:
    """All users of a pool."""
    data = a2lp.load(path)
    x, truth = data.features.astype(np.float32), np.unique(data.labels, return_inverse=True)[1]
    return [one for seed in range(n) if (one := user(x, truth, np.random.default_rng([7, seed])))]


def summary(found: list[dict[str, Any]]) -> dict[str, float]:
    """Shares of users to whom the page told the truth."""
    inside = [one["audit"][0] <= one["accuracy"] <= one["audit"][1] for one in found]
    estimated = [one["estimate"][1] <= one["accuracy"] <= one["estimate"][2] for one in found]
    near = [one["forecast"] <= 2 * one["gain"] <= 4 * one["forecast"] for one in found]
    close = [abs(one["forecast"] - one["gain"]) <= 0.01 for one in found]
    return {
        "users": len(found),
        "audit": float(np.mean(inside)),
        "estimate": float(np.mean(estimated)),
        "factor_2": float(np.mean(near)),
        "factor_2_or_a_point": float(np.mean(np.array(near) | np.array(close))),
        "forecast": float(np.mean([one["forecast"] for one in found])),
        "gain": float(np.mean([one["gain"] for one in found])),
    }


def page(text: str, record: Record) -> str:
    """The page with its generated table."""
    pools = record.named("users")
    lines = {POOLS[name]: found for name, found in pools.items()}
    if len(pools) > 1:
        lines["all"] = [one for found in pools.values() for one in found]
    rows = []
    for name, found in lines.items():
        made = summary(found)
        shares = [f"{100 * made[key]:.0f} %" for key in ("audit", "estimate", "factor_2", "factor_2_or_a_point")]
        rows.append([name, str(made["users"]), *shares, *(f"{100 * made[key]:+.1f}" for key in ("forecast", "gain"))])
    heads = ["pool", "users", "audit right", "estimate right", "forecast within a factor of 2", "or one point"]
    return fill(text, "audits", {"table": table([*heads, "mean forecast", "mean gain"], rows)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--only", choices=POOLS, help="one pool")
    parser.add_argument("--data", type=Path, help="folder of feature files")
    options = parser.parse_args()
    record = Record(RECORD, "What the labelling page says about accuracy, to 200 simulated users")
    for name in POOLS if options.measure else ():
        if options.only in (None, name):
            part = f"users {name}"
            record.measure(part, lambda: users(options.data / f"{name}.npz", USERS[name]), users=USERS[name])  # noqa: B023
    for name, found in record.named("users").items():
        print(name, summary(found))
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()

"""Compiled code is that of the sources that are installed, and is kept where it can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import a2lp

PACKAGE = Path(a2lp.__file__).parent

# imprinting's kernel calls kernels/losses.py, which lies in another file
WEIGHTS = """
import numpy as np, a2lp
from a2lp.kernels import compiler
from a2lp.loops.imprint import kernel
rng = np.random.default_rng(0)
batch = a2lp.TaskBatch(rng.random((1, 4, 6)), [[0, 1, 1, 0]], rng.random((1, 3, 6)))
found = a2lp.create("imprinting", steps=5, lr=0.1, numerics="exact").predict(batch)
stats = kernel.fine_tune.stats
print(float(found.anchors.sum()), bool(stats.cache_hits), compiler.folder())
"""


def run(site: Path, cache: Path) -> tuple[float, bool, str]:
    """The weights' sum, whether the kernel was loaded from the cache, and the cache's folder."""
    environment = os.environ | {"PYTHONPATH": str(site), "A2LP_CACHE": str(cache)}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", WEIGHTS], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    total, loaded, folder = done.stdout.strip().split(" ", 2)
    return float(total), loaded == "True", folder


def test_an_upgrade_of_any_kernel_source_is_compiled_anew(tmp_path: Path) -> None:
    site = tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__", "data", "images")
    shutil.copytree(PACKAGE, site / "a2lp", ignore=ignored)
    before, loaded, folder = run(site, tmp_path / "cache")
    assert not loaded and Path(folder).parent == tmp_path / "cache" / "kernels"
    assert run(site, tmp_path / "cache") == (before, True, folder)
    source = site / "a2lp" / "kernels" / "losses.py"
    text = source.read_text(encoding="utf-8")
    assert "factor = tau * scale /" in text
    source.write_text(text.replace("factor = tau * scale /", "factor = -tau * scale /"), encoding="utf-8")
    after, loaded, new_folder = run(site, tmp_path / "cache")
    assert not loaded and new_folder != folder
    assert abs(after - before) > 0.01, "the old loss still runs"


def in_fresh(code: str, cache: Path) -> str:
    environment = os.environ | {"A2LP_CACHE": str(cache)}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_old_versions_leave(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    for days, name in ((400, "forgotten"), (3, "recent")):
        (kernels / name).mkdir(parents=True)
        (kernels / name / "kernel.nbc").write_bytes(b"code")
        used = time.time() - days * 86400
        os.utime(kernels / name, (used, used))
    current = in_fresh("from a2lp.kernels import compiler; print(compiler.folder())", tmp_path)
    assert {path.name for path in kernels.iterdir()} == {"recent", Path(current).name}


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    code = "from a2lp.kernels import compiler; print(compiler.folder())"
    current = Path(in_fresh(code, tmp_path))
    assert current.stat().st_mode & 0o077 == 0
    current.chmod(0o777)
    assert in_fresh(code, tmp_path) == "None"  # its pickles could be anybody's


def test_without_a_writable_folder_kernels_still_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    total, loaded, folder = run(PACKAGE.parent, tmp_path / "file")
    assert (loaded, folder) == (False, "None")
    assert total > 0

"""The compiled engine where a processor has AVX2 and no AVX-512: numba is told to compile for such a one."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HASWELL = "+avx2,+fma,+avx,+bmi,+bmi2,+f16c,+lzcnt,+movbe,+popcnt,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3,+cx16,+64bit"

CODE = """
import json

import numpy as np

import a2lp
from a2lp import doctor
from a2lp.engines.fused_cpu import kernel as _cpu_kernel
from a2lp.kernels import simd as _simd

rng = np.random.default_rng(2)
centres = rng.normal(size=(3, 4, 50))
codes = np.tile([2, 0, 1, 3, 1, 1], (3, 1))
support = centres[np.arange(3)[:, None], codes] + 0.8 * rng.normal(size=(3, 6, 50))
query = centres[np.arange(3)[:, None], rng.integers(0, 4, (3, 33))] + 0.8 * rng.normal(size=(3, 33, 50))

def scores(engine, dtype):
    batch = a2lp.TaskBatch(support.astype(dtype), codes, query.astype(dtype))
    return a2lp.create("a2lp", engine=engine, steps=20, n_neighbors=9).predict(batch).scores

expected = scores("reference", np.float64)
far = {name: float(abs(scores("fused_cpu", name) - expected).max()) for name in ("float64", "float32")}
code = "".join(_cpu_kernel.solve_task.inspect_asm().values())
print(json.dumps({
    "avx512": _simd.HAS_AVX512, "far": far, "vectors": doctor.vector_instructions(),
    "zmm": code.count("%zmm"), "ymm": code.count("%ymm"), "fma": code.count("vfmadd"),
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="AVX2 is a matter of x86 processors")
def test_fused_cpu_on_avx2_is_the_reference(tmp_path: Path) -> None:
    settings = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": HASWELL, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["avx512"] is False
    assert found["vectors"].startswith("AVX2")
    assert found["zmm"] == 0  # 512-bit registers
    assert found["ymm"] > 1000 and found["fma"] > 100
    assert np.isfinite(list(found["far"].values())).all()
    assert found["far"]["float64"] <= 1e-9
    assert found["far"]["float32"] <= 1e-4

"""CUDA kernels without a GPU: their source as C++, run by threads."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

Array = np.ndarray[Any, Any]

# Shared memory is NaN before each task, so that nothing is read that was not written; behind its end it must stay so.
CALL = """
struct Argument {
    void* at;
    template <class T> operator T*() const { return (T*)at; }
    operator Params() const { return *(Params*)at; }
};
extern "C" int run(int blocks, int threads, int bytes, void** given) {
    bool within = true;
    blockDim.x = threads;
    auto thread = [&](int place) {
        threadIdx.x = place;
        for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
            if (place == 0) memset(memory, 0xff, sizeof memory);
            meet();
            KERNEL(ARGUMENTS);
            meet();
        }
    };
    std::vector<std::thread> team;
    for (int place = 0; place < threads; place++) team.emplace_back(thread, place);
    for (auto& member : team) member.join();
    for (size_t at = bytes; at < sizeof memory; at++) within &= ((unsigned char*)memory)[at] == 0xff;
    return within;
}
"""


class Kernel(NamedTuple):
    """A kernel of one block to a task, whose last argument is its parameters."""

    name: str
    source: str
    compiled: Callable[[str, str, tuple[tuple[str, int], ...]], ctypes.CDLL]

    def launch(
        self,
        arrays: Sequence[Array],
        parameters: ctypes.Structure,
        *,
        blocks: int,
        threads: int,
        shared: int,
        defines: Mapping[str, int],
    ) -> list[Array]:
        """The arrays after the launch, in copies; ``shared``: bytes of shared memory that a block asks for."""
        kept = [np.array(array, order="C") for array in arrays]
        pointers = [array.ctypes.data for array in kept] + [ctypes.addressof(parameters)]
        arguments = ", ".join(f"Argument{{given[{i}]}}" for i in range(len(pointers)))
        call = CALL.replace("KERNEL", self.name).replace("ARGUMENTS", arguments)
        built = self.compiled(self.name, self.source + call, tuple(defines.items()))
        assert built.run(blocks, threads, shared, (ctypes.c_void_p * len(pointers))(*pointers)), "behind shared memory"
        return kept


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Kernel]:
    """``kernel(name, source)``: the kernel of that name, compiled when it is launched."""
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        pytest.skip("needs a C++ compiler (c++, g++ or clang++)")
    folder = tmp_path_factory.mktemp("kernels")
    shim = Path(__file__).with_name("cuda_on_threads.h").read_text(encoding="utf-8")

    @cache
    def compiled(name: str, source: str, defines: tuple[tuple[str, int], ...]) -> ctypes.CDLL:
        file = folder / "_".join([name, *(str(value) for _, value in defines)])
        file.with_suffix(".cpp").write_text(shim + source)
        options = ["-std=c++17", "-O1", "-pthread", "-shared", "-fPIC", "-Wno-unknown-pragmas"]
        macros = [f"-D{key}={value}" for key, value in defines]
        subprocess.run(
            [compiler, *options, *macros, "-o", f"{file}.so", f"{file}.cpp"], check=True, capture_output=True
        )
        return ctypes.CDLL(f"{file}.so")

    return lambda name, source: Kernel(name, source, compiled)

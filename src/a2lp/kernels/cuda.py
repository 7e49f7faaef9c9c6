"""CUDA C++ compiled at run time by NVRTC, which comes with torch, and launched by the driver, both through ctypes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from a2lp.errors import A2LPError


class CudaError(A2LPError, RuntimeError):
    """The CUDA driver or compiler reported an error; the message is its own."""


@cache
def _nvrtc() -> Any:
    """The NVRTC library: among the packages that torch installs, or where the loader finds it."""
    found = [str(file) for path in sys.path if path for file in (Path(path) / "nvidia").rglob("libnvrtc.so.*")]
    names = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"]
    for name in sorted((file for file in found if "builtins" not in file), reverse=True) + names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CudaError("no NVRTC library was found; it comes with CUDA builds of torch (package nvidia-cuda-nvrtc).")


@cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaError("the CUDA driver library (libcuda.so.1) is not there; install the NVIDIA driver.") from error


def available() -> str | None:
    """None if kernels can be compiled and run here, else the reason."""
    try:
        _nvrtc(), _driver()
    except CudaError as error:
        return str(error)
    return None


@cache
def shared_limit(device: Any) -> int:
    """Bytes of shared memory that a block may have on a torch device."""
    import torch

    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


def _check(status: int, what: str) -> None:
    if status:
        name = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(name))
        raise CudaError(f"{what}: {(name.value or b'unknown error').decode()}")


def structure(real: Any, reals: str, integers: str) -> Any:
    """A kernel's parameters as a class: the names of its real numbers, then of its integers."""
    fields = [(name, real) for name in reals.split()] + [(name, ctypes.c_int) for name in integers.split()]
    return type("Params", (ctypes.Structure,), {"_fields_": fields})


@cache
def compile_source(source: str, device: Any, **defines: int) -> bytes:
    """Machine code (cubin) for a torch device."""
    import torch

    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"a2lp.cu", 0, None, None)
    options = [f"--gpu-architecture={architecture}", "--std=c++17", *(f"-D{k}={v}" for k, v in defines.items())]
    array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))

    def output(kind: str) -> Any:
        size = ctypes.c_size_t()
        nvrtc[f"nvrtcGet{kind}Size"](program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        nvrtc[f"nvrtcGet{kind}"](program, buffer)
        return buffer

    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), array):
            raise CudaError(f"the kernel does not compile for {architecture}: {output('ProgramLog').value.decode()}")
        return bytes(output("CUBIN").raw)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


class Kernel:
    """A loaded kernel; it is launched in the current CUDA context, which torch has made."""

    # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES and _PREFERRED_SHARED_MEMORY_CARVEOUT
    _SHARED_BYTES, _CARVEOUT = 8, 9

    def __init__(self, code: bytes, name: str, shared_bytes: int, threads: int) -> None:
        module, self._function, driver = ctypes.c_void_p(), ctypes.c_void_p(), _driver()
        self._shared, self._threads = shared_bytes, threads
        _check(driver.cuModuleLoadData(ctypes.byref(module), code), "loading the kernel")
        _check(driver.cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()), f"finding {name}")
        status = driver.cuFuncSetAttribute(self._function, self._SHARED_BYTES, shared_bytes)
        _check(status, f"asking for {shared_bytes} bytes of shared memory")
        # all of the cache as shared memory, so that as many blocks as fit share a multiprocessor
        _check(driver.cuFuncSetAttribute(self._function, self._CARVEOUT, 100), "setting the carve-out")

    def launch(self, blocks: int, arrays: Sequence[Any], parameters: ctypes.Structure) -> None:
        """Start with torch tensors and parameters on the current stream; torch frees tensors in stream order."""
        import torch

        stream = ctypes.c_void_p(torch.cuda.current_stream(arrays[0].device).cuda_stream)
        arguments = [*(ctypes.c_void_p(x.data_ptr()) for x in arrays), parameters]
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        status = _driver().cuLaunchKernel(
            self._function, blocks, 1, 1, self._threads, 1, 1, self._shared, stream, pointers, None
        )
        _check(status, "launching the kernel")

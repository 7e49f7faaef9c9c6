"""CUDA C++ compiled at run time, with what a torch installation brings: NVRTC and the driver, through ctypes."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import Any

from a2lp.errors import A2LPError


class CudaError(A2LPError, RuntimeError):
    """The CUDA driver or compiler refused something; the message is its own."""


@cache
def _nvrtc() -> Any:
    """The NVRTC library: where the loader finds it, or among the packages that torch brings."""
    packages = [Path(p) / "nvidia" for p in sys.path if p]
    found = [str(f) for p in packages for f in p.rglob("libnvrtc.so.*")]
    names = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"]
    for name in sorted((f for f in found if "builtins" not in f), reverse=True) + names:
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
    """None if kernels can be compiled and run here, else the reason why not."""
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


def compile_source(source: str, architecture: str, defines: dict[str, int]) -> bytes:
    """Machine code (cubin) for an architecture such as ``sm_90``."""
    nvrtc = _nvrtc()
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"a2lp.cu", 0, None, None)
    options = [f"--gpu-architecture={architecture}", "--std=c++17", *(f"-D{k}={v}" for k, v in defines.items())]
    array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), array):
            size = ctypes.c_size_t()
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise CudaError(f"the kernel does not compile for {architecture}: {log.value.decode()}")
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, code)
        return code.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


class Kernel:
    """A loaded kernel; the current CUDA context must be the one it is launched in (torch makes it)."""

    # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES and _PREFERRED_SHARED_MEMORY_CARVEOUT
    _SHARED_BYTES, _CARVEOUT = 8, 9

    def __init__(self, code: bytes, name: str, shared_bytes: int, threads: int) -> None:
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._shared, self._threads = shared_bytes, threads
        _check(_driver().cuModuleLoadData(ctypes.byref(module), code), "loading the kernel")
        _check(_driver().cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()), f"finding {name}")
        status = _driver().cuFuncSetAttribute(self._function, self._SHARED_BYTES, shared_bytes)
        _check(status, f"asking for {shared_bytes} bytes of shared memory")
        # all of the cache as shared memory, so that as many blocks as fit share a multiprocessor
        _check(_driver().cuFuncSetAttribute(self._function, self._CARVEOUT, 100), "setting the carve-out")

    def launch(self, blocks: int, stream: int, arguments: list[Any]) -> None:
        """Start on a stream; arguments are ctypes values."""
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        status = _driver().cuLaunchKernel(
            self._function, blocks, 1, 1, self._threads, 1, 1, self._shared, ctypes.c_void_p(stream), pointers, None
        )
        _check(status, "launching the kernel")

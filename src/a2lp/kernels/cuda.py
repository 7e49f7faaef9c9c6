"""CUDA C++ compiled at run time by NVRTC, which comes with torch, and launched by the driver, both through ctypes.

What is compiled is kept in the user's cache: NVRTC takes seconds, and loading takes milliseconds.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from a2lp.errors import A2LPError
from a2lp.files import cache_folder, replacing
from a2lp.kernels.kept import private_folder, remove_old

_HASH = hashlib.sha256
_MOST_FILES = 200


class CudaError(A2LPError, RuntimeError):
    """The CUDA driver or compiler reported an error; the message is its own."""


@cache
def _nvrtc() -> Any:
    """The NVRTC library: among the packages that torch installs, or where the loader finds it."""
    # nvidia/cu13/lib, nvidia/cuda_nvrtc/lib
    found = [str(file) for path in sys.path if path for file in Path(path).glob("nvidia/*/lib/libnvrtc.so.*")]
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
    """Machine code (cubin) for a torch device, from the cache where it was compiled before."""
    import torch

    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    options = [f"--gpu-architecture={architecture}", "--std=c++17", *(f"-D{k}={v}" for k, v in defines.items())]
    decisive = "\0".join([_nvrtc_version(), *options, source])
    return kept(_HASH(decisive.encode()).hexdigest(), lambda: _compile(source, options))


def kept(key: str, make: Callable[[], bytes]) -> bytes:
    """Code that is in the cache under a key, or is made and put there.

    A file starts with a hash of the rest, so that damaged code is noticed and made again.
    """
    folder, size = _folder(), _HASH().digest_size
    if folder is None:
        return make()
    file = folder / f"{key}.cubin"
    with suppress(OSError):
        content = file.read_bytes()
        if _HASH(content[size:]).digest() == content[:size]:
            os.utime(file)
            return content[size:]
    code = make()
    with suppress(OSError):
        with replacing(file) as temporary:
            temporary.write_bytes(_HASH(code).digest() + code)
        remove_old(folder.glob("*.cubin"), _MOST_FILES)
    return code


@cache
def _folder() -> Path | None:
    """The folder of compiled kernels; None if it cannot be written, or if others can write to it."""
    try:
        folder = cache_folder() / "cuda"
        return folder if private_folder(folder) else None
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None


def _nvrtc_version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def _compile(source: str, options: list[str]) -> bytes:
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"a2lp.cu", 0, None, None)
    array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))

    def output(kind: str) -> Any:
        size = ctypes.c_size_t()
        nvrtc[f"nvrtcGet{kind}Size"](program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        nvrtc[f"nvrtcGet{kind}"](program, buffer)
        return buffer

    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), array):
            raise CudaError(f"a kernel does not compile with {options}: {output('ProgramLog').value.decode()}")
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

"""NVRTC, NVIDIA's run-time compiler, called through ctypes: CUDA C to PTX or to a cubin.

No driver and no GPU is needed. The library is taken from NVIDIA's wheel, from CuPy's files or from
the system. CuPy's own way to it is not used: it always adds `-ftz=true` and can't say sm_90a.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import re
import struct
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lumjax.errors import CompileError
from lumjax.record import record
from lumjax.store import Store

# A product and a sum are fused only where the kernel says so; denormals, quotients and roots are
# IEEE's: results then do not depend on how the compiler felt about a kernel.
OPTIONS = (
    "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true", "-std=c++17",
    "--device-as-default-execution-space", "-diag-suppress=177",  # what a kernel does not use
)  # fmt: skip
RESERVED = 1024  # bytes of a block's shared memory on sm_90 and later
_KINDS = {"ptx": "PTX", "cubin": "CUBIN"}
_MADE = Store("nvrtc", 2, ".bin")
_lock = threading.RLock()

_WHAT_TO_INSTALL = "run pip install nvidia-cuda-nvrtc (CUDA 13) or nvidia-cuda-nvrtc-cu12 (CUDA 12)"


@record
class Usage:
    """What one kernel of a cubin takes: registers of a thread, bytes of its local memory, bytes of
    static shared memory of a block, bytes written to and read from memory for want of registers.
    """

    registers: int
    local: int
    shared: int
    spills: int


@record
class Cubin:
    """Machine code for one architecture, the compiler's remarks, and what each kernel takes."""

    code: bytes
    log: str
    usage: Mapping[str, Usage]


# ---- the library


def _candidates() -> Iterator[Path]:
    """Where the library may be: wheels on the path, newest first, then the system."""
    for entry in map(Path, sys.path):
        yield from sorted(entry.glob("nvidia/*/lib/libnvrtc.so.[0-9]*"), reverse=True)
        yield from sorted(entry.glob("cupy/.data/lib/libnvrtc.so.[0-9]*"), reverse=True)
    for pattern in ("cuda/lib64", "cuda/targets/*/lib"):
        yield from sorted(Path("/usr/local").glob(f"{pattern}/libnvrtc.so.[0-9]*"), reverse=True)


def _library() -> Any:
    """The library, loaded; None where there is none."""
    for path in _candidates():
        for helper in path.parent.glob("libnvrtc-builtins.so.*"):  # found by its name once loaded
            ctypes.CDLL(str(helper), mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(path))
    name = ctypes.util.find_library("nvrtc")
    return None if name is None else ctypes.CDLL(name)


@cache
def _nvrtc() -> Any:
    try:
        found = _library()
        why = "no libnvrtc in the environment's packages or the system"
    except OSError as e:
        found, why = None, str(e)
    if found is None:
        raise CompileError(
            operation="compiling CUDA C",
            required="NVIDIA's run-time compiler, libnvrtc",
            got=why,
            fix=_WHAT_TO_INSTALL,
        )
    found.nvrtcGetErrorString.restype = ctypes.c_char_p
    return found


def missing() -> str | None:
    """Why nothing can be compiled here, None if it can."""
    try:
        _nvrtc()
    except CompileError as e:
        return str(e)
    return None


@cache
def version() -> tuple[int, int]:
    """The library's version.

    Raises CompileError, here as everywhere, where there is none.
    """
    major, minor = ctypes.c_int(), ctypes.c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


# ---- compiling


def ptx(source: str, arch: str = "compute_80", options: Sequence[str] = ()) -> str:
    """The PTX of a source text. Equal texts are compiled once, ever, and then read from the disk.

    Raises CompileError with the compiler's remarks if it refuses the text.
    """
    key = _key(source, arch, options, "ptx")
    kept = _MADE.read(key)
    if kept is not None:
        return kept.decode()
    made, _ = _compile(source, (f"-arch={arch}", *OPTIONS, *options), "ptx")
    made = made.rstrip(b"\0")
    _MADE.write(key, made)
    return made.decode()


def cubin(source: str, arch: str = "sm_80", options: Sequence[str] = ()) -> Cubin:
    """The machine code of a source text for one architecture (sm_80, sm_90a). Equal texts are
    compiled once, ever.

    Raises CompileError with the compiler's remarks if it refuses the text.
    """
    key = _key(source, arch, options, "cubin")
    kept = _MADE.read(key)
    if kept is None:
        flags = (f"-arch={arch}", *OPTIONS, "--ptxas-options=-v", *options)
        code, log = _compile(source, flags, "cubin")
        _MADE.write(key, log.encode() + b"\0" + code)
    else:
        text, _, code = kept.partition(b"\0")
        log = text.decode()
    return Cubin(code, log, _usage(code, log))


def _key(source: str, arch: str, options: Sequence[str], kind: str) -> str:
    parts = (kind, arch, *map(str, version()), *OPTIONS, *options, source)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _compile(source: str, options: Sequence[str], kind: str) -> tuple[bytes, str]:
    """What NVRTC makes of a text, and its log."""
    with _lock:
        library, program = _nvrtc(), ctypes.c_void_p()
        text = source.encode()
        status = library.nvrtcCreateProgram(
            ctypes.byref(program), text, b"lumjax.cu", 0, None, None
        )
        _check(status, source)
        try:
            flags = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
            status = library.nvrtcCompileProgram(program, len(options), flags)
            log = _read(program, "ProgramLog").decode(errors="replace")
            _check(status, source, log)
            return _read(program, _KINDS[kind]), log.rstrip("\0\n")
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program: ctypes.c_void_p, what: str) -> bytes:
    library, size = _nvrtc(), ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(max(1, size.value))
    getattr(library, f"nvrtcGet{what}")(program, buffer)
    return buffer.raw[: size.value]


def _check(status: int, source: str, log: str = "") -> None:
    if status:
        reason: bytes = _nvrtc().nvrtcGetErrorString(status)
        remarks = log.rstrip("\0\n")
        raise CompileError(
            operation="compiling CUDA C",
            required="a text that NVRTC accepts",
            got=f"{reason.decode()}\n{remarks}\n{_around(source, remarks)}",
            fix="report this as a bug in the rendering of CUDA kernels",
        )


def _around(source: str, log: str) -> str:
    """The line that the first remark is about."""
    where = re.search(r"lumjax\.cu\((\d+)\)", log)
    lines = source.splitlines()
    if where is None or not 0 < int(where[1]) <= len(lines):
        return ""
    return f"line {where[1]}: {lines[int(where[1]) - 1].strip()}"


# ---- what kernels take


def _usage(code: bytes, log: str) -> dict[str, Usage]:
    """Registers and memory from the cubin, which is an ELF file; spills from the log."""
    spills = {m[1]: int(m[2]) + int(m[3]) for m in re.finditer(
        r"Function properties for (\S+)\s.*?(\d+) bytes spill stores, (\d+) bytes spill loads",
        log, re.DOTALL,
    )}  # fmt: skip
    kernels: list[str] = []
    shared: dict[str, int] = {}
    frames: dict[int, int] = {}
    registers: dict[int, int] = {}
    symbols: dict[int, str] = {}
    for section in _sections(code):
        if section.name.startswith(".text."):
            kernels.append(section.name[6:])
        elif section.name.startswith(".nv.shared.") and ".reserved" not in section.name:
            shared[section.name[11:]] = section.size
        elif section.name == ".nv.info":
            attributes = code[section.offset : section.offset + section.size]
            frames, registers = (_by_symbol(attributes, k) for k in (_FRAME_SIZE, _REGISTERS))
        elif section.name == ".symtab":
            symbols = _symbols(code, section)
    local = {symbols.get(k, ""): size for k, size in frames.items()}
    counts = {symbols.get(k, ""): count for k, count in registers.items()}
    reserved = {m[1]: int(m[2]) for m in re.finditer(
        r"Compiling entry function '(\S+)' for 'sm_(\d+)", log
    )}  # fmt: skip
    for name, size in shared.items():  # newer machines keep the first bytes for themselves
        if reserved.get(name, 0) >= 90:
            shared[name] = size - RESERVED
    return {
        name: Usage(
            counts.get(name, 0), local.get(name, 0), shared.get(name, 0), spills.get(name, 0)
        )
        for name in kernels
    }


@record
class _Section:
    name: str
    info: int
    offset: int
    size: int
    link: int


def _sections(code: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", code, 40)
    size, count, names = struct.unpack_from("<HHH", code, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", code, table + k * size) for k in range(count)]
    strings = rows[names][4]
    return [_Section(_text(code, strings + r[0]), r[7], r[4], r[5], r[6]) for r in rows]


def _text(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()


def _symbols(code: bytes, table: _Section) -> dict[int, str]:
    strings = _sections(code)[table.link].offset
    count = table.size // 24
    places = (struct.unpack_from("<I", code, table.offset + 24 * k)[0] for k in range(count))
    return {k: _text(code, strings + place) for k, place in enumerate(places)}


_FRAME_SIZE, _REGISTERS = 0x11, 0x2F


def _by_symbol(info: bytes, wanted: int) -> dict[int, int]:
    """The values of one attribute, by number of symbol."""
    found: dict[int, int] = {}
    at = 0
    while at + 4 <= len(info):
        form, attribute, value = struct.unpack_from("<BBH", info, at)
        if form == 4 and attribute == wanted:
            symbol, number = struct.unpack_from("<II", info, at + 4)
            found[symbol] = number
        at += 4 + (value if form == 4 else 0)
    return found

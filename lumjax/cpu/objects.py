"""Native code in process: the host as a target, LLVM IR text to object code, objects to addresses.

llvmlite is loaded here, on first use. Objects are cached on disk under a key of the text, the
machine and the LLVM version.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from lumjax.config import config
from lumjax.cpu.real import LIBM
from lumjax.errors import CompileError
from lumjax.store import Store
from lumjax.target import Backend, Target

_OBJECTS = Store("objects", 2, ".o")
# The machine scheduler lifts an unrolled tile's loads over its arithmetic until registers spill.
_OPTION = "-enable-misched=false"
_lock = threading.RLock()


@cache
def library() -> ModuleType:
    """LLVM, with this machine as its target."""
    import llvmlite.binding as llvm  # noqa: PLC0415

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.set_option("", _OPTION)
    return llvm


@cache
def version() -> str:
    """Of the library that makes object code."""
    import llvmlite  # noqa: PLC0415

    return str(llvmlite.__version__)


# ---- the machine


def _cache_size(level: int, default: int) -> int:
    """The size of a core's data cache, from sysfs where there is one."""
    root = Path("/sys/devices/system/cpu/cpu0/cache")
    try:
        for entry in sorted(root.glob("index*")):
            kind = (entry / "type").read_text().strip()
            if kind != "Instruction" and int((entry / "level").read_text()) == level:
                text = (entry / "size").read_text().strip()
                unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
                return int(text.rstrip("KMG")) * unit
    except (OSError, ValueError):
        pass
    return default


def cpu_count() -> int:
    """The threads to use: LUMJAX_NUM_THREADS, else the cores this process may run on."""
    if config.num_threads > 0:
        return config.num_threads
    return _cores()


@cache
def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_AVX2 = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt"
_AVX512 = _AVX2 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
# What processors of a name have: LLVM knows, but cannot be asked.
_FEATURES = {
    **dict.fromkeys(("x86-64-v3", "haswell", "broadwell", "skylake", "znver2", "znver3"), _AVX2),
    **dict.fromkeys(("x86-64-v4", "skylake-avx512", "icelake-server"), _AVX512),
}


def _vector(features: str, arch: str) -> tuple[int, int]:
    """(bytes of a vector register, how many there are)."""
    present = set(features.split(","))
    if present.issuperset(("+avx", "+avx2", "+avx512f", "+avx512vl")):  # each needs those before
        return 64, 32
    if "+avx" in present:
        return 32, 16
    if "+neon" in present or arch in ("aarch64", "arm64"):
        return 16, 32
    return 16, 16


def host_target() -> Target:
    """The machine, or what `config.cpu` ("name:+feature,-feature") makes of it."""
    return _host(config.cpu, cpu_count())


@cache
def _host(override: str, cores: int) -> Target:
    llvm = library()
    triple = llvm.get_process_triple()
    name, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    if override:
        chosen, _, changes = override.partition(":")
        if chosen and chosen != name:
            name, features = chosen, _FEATURES.get(chosen, "")
        features = ",".join(filter(None, [_without(features, changes), changes]))
    width, count = _vector(features, triple.split("-")[0])
    return Target(
        Backend.CPU,
        name,
        features,
        width,
        count,
        cores,
        _cache_size(1, 32 << 10),
        _cache_size(2, 512 << 10),
        _cache_size(3, 16 << 20),
    )


def _without(features: str, changes: str) -> str:
    changed = {c[1:] for c in changes.split(",") if c}
    return ",".join(f for f in features.split(",") if f[1:] not in changed)


# ---- text to object


@cache
def _machine(arch: str, features: str) -> Any:
    llvm = library()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=arch, features=features, opt=2, codemodel="jitdefault", jit=True
    )


def object_key(text: str, target: Target) -> bytes:
    """What the object file of a module's text is cached under."""
    parts = [target.arch, target.features, version(), _OPTION, text]
    return hashlib.sha256("\0".join(parts).encode()).digest()


def object_code(text: str, target: Target) -> bytes:
    """The object file for a module's text, from the cache on disk if it is there.

    Raises CompileError if LLVM refuses the text.
    """
    return begin_object(text, target)()


def begin_object(text: str, target: Target, thread: Executor | None = None) -> Callable[[], bytes]:
    """`object_code` in two steps: what is returned ends it. Meanwhile LLVM works in `thread`."""
    key = object_key(text, target)
    kept = cached_code(key)
    if kept is not None:
        return lambda: kept
    making = None if thread is None else thread.submit(_generate, text, target)

    def end() -> bytes:
        made = _generate(text, target) if making is None else making.result()
        _OBJECTS.write(key.hex(), made)
        return made

    return end


def cached_code(key: bytes) -> bytes | None:
    """The object file that is cached under a key, None if there is none."""
    return _trusted.get(key.hex()) or _OBJECTS.read(key.hex())


_trusted: dict[str, bytes] = {}


def trust(code: Mapping[str, bytes]) -> None:
    """Take object files, by key in hexadecimal, for what is cached under it: what they hold is run
    as it is.
    """
    _trusted.update(code)


def _generate(text: str, target: Target) -> bytes:
    llvm = library()
    try:
        with _lock:
            module = llvm.parse_assembly(text)
            module.verify()
            return bytes(_machine(target.arch, target.features).emit_object(module))
    except RuntimeError as error:
        raise CompileError(
            operation="generating native code",
            required="LLVM IR that LLVM accepts",
            got=str(error).strip()[:400],
            fix="please report this as a bug, with the program",
        ) from error


# ---- object to addresses


class _Loader:
    """The process's one JIT. Libraries live as long as the process."""

    def __init__(self) -> None:
        self.jit: Any = None
        self.libraries: list[Any] = []
        self.made = 0

    def load(self, code: bytes, names: Sequence[str], imports: Mapping[str, int]) -> list[int]:
        llvm = library()
        with _lock:
            if self.jit is None:
                self.jit = llvm.create_lljit_compiler(use_jit_link=False)
            builder = llvm.JITLibraryBuilder()
            builder.add_object_img(code).add_current_process()
            for name, address in imports.items():
                builder.import_symbol(name, address)
            for name in names:
                builder.export_symbol(name)
            self.made += 1  # a library that fails to link keeps its name
            added = builder.link(self.jit, f"lumjax{self.made}")
            self.libraries.append(added)
            return [added[n] for n in names]


_loader = _Loader()


def load(code: bytes, names: Sequence[str], imports: Mapping[str, int]) -> list[int]:
    """The addresses of the named functions of an object file that calls `imports`."""
    return _loader.load(code, names, imports)


def libm_imports(text: str) -> tuple[str, ...]:
    """The names of the C library's functions that a module calls."""
    return tuple(re.findall(rf"^declare double @{LIBM}(\w+)\(", text, re.MULTILINE))


def libm_symbols(names: Sequence[str]) -> dict[str, int]:
    """Addresses of the C library's functions, by the names that modules call them."""
    return {LIBM + name: libm_address(name) for name in names}


@cache
def _libm() -> ctypes.CDLL:
    if sys.platform == "win32":
        return ctypes.CDLL("ucrtbase")
    return ctypes.CDLL(ctypes.util.find_library("m"))


@cache
def libm_address(name: str) -> int:
    """Where the C library's function is."""
    address = ctypes.cast(getattr(_libm(), name), ctypes.c_void_p).value
    assert address is not None, "a function has an address"
    return address

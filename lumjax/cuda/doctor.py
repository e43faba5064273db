"""What a machine has of what CUDA takes, and what to install."""

from __future__ import annotations

import ctypes
import ctypes.util
from pathlib import Path

from lumjax.cuda import device, nvrtc
from lumjax.errors import LumjaxError
from lumjax.record import record

_DRIVER = Path("/proc/driver/nvidia/version")
_OLD = 13  # the CUDA version below which packages have names of their own


@record
class Finding:
    """One thing that CUDA takes: what was found of it; what to do about it, if anything."""

    name: str
    found: str
    fix: str = ""


@record
class Checkup:
    """What was found."""

    findings: tuple[Finding, ...]

    @property
    def ready(self) -> bool:
        """Whether all is there that backend 'cuda' takes."""
        return not any(f.fix for f in self.findings)

    @property
    def emulated(self) -> bool:
        """Whether all is there that backend 'cuda:emulated' takes."""
        return not any(f.fix for f in self.findings if f.name == "NVRTC")

    def __str__(self) -> str:
        lines: list[str] = []
        for f in self.findings:
            lines += [f"{f.name:8}{f.found}", *([f"{'':8}-> {f.fix}"] if f.fix else [])]
        for name, fine in (("cuda", self.ready), ("cuda:emulated", self.emulated)):
            lines.append(f"backend {name!r} {'has all it takes' if fine else 'lacks something'}")
        return "\n".join(lines)


def doctor() -> Checkup:
    """What this machine has of what CUDA takes: driver, CUDA, NVRTC, CuPy, a GPU and the
    architecture that kernels are compiled for; and what to install. It works without any of them.
    `print(lumjax.doctor())` tells all.

    >>> [finding.name for finding in doctor().findings]
    ['driver', 'CUDA', 'NVRTC', 'CuPy', 'GPU']
    """
    cuda = _version()
    return Checkup((_driver(cuda), _cuda(cuda), _compiler(cuda), _cupy(cuda), _gpu()))


def _version() -> tuple[int, int] | None:
    """The newest CUDA that the driver knows; None without a driver."""
    try:
        library = ctypes.CDLL(ctypes.util.find_library("cuda") or "libcuda.so.1")
        found = ctypes.c_int()
        if library.cuDriverGetVersion(ctypes.byref(found)):
            return None
    except (OSError, AttributeError):
        return None
    return found.value // 1000, found.value % 1000 // 10


def _driver(version: tuple[int, int] | None) -> Finding:
    """The kernel's part of the driver, which some systems do not tell."""
    if not _DRIVER.exists():
        if version is not None:
            return Finding("driver", "there is one")
        fix = "install NVIDIA's driver to run on a GPU; cuda:emulated needs none"
        return Finding("driver", "none is loaded", fix)
    return Finding("driver", _DRIVER.read_text(encoding="utf-8").splitlines()[0])


def _cuda(version: tuple[int, int] | None) -> Finding:
    if version is None:
        return Finding("CUDA", "no libcuda", "it comes with the driver")
    text = "up to {}.{}, by the driver".format(*version)
    return Finding("CUDA", text, "" if version[0] >= 12 else "install a driver for CUDA 12 or 13")


def _suffix(version: tuple[int, int] | None) -> str:
    """What packages for a driver's CUDA have in their names."""
    return "12" if version is not None and version[0] < _OLD else ""


def _compiler(version: tuple[int, int] | None) -> Finding:
    package = "nvidia-cuda-nvrtc" + ("-cu12" if _suffix(version) else "")
    why = nvrtc.missing()
    if why is not None:
        return Finding("NVRTC", "there is none", f"run pip install {package}")
    major, minor = nvrtc.version()
    fix = ""
    if version is not None and major > version[0]:
        fix = f"its machine code is too new for the driver: run pip install {package}"
    return Finding("NVRTC", f"{major}.{minor}", fix)


def _cupy(version: tuple[int, int] | None) -> Finding:
    try:
        return Finding("CuPy", str(device.cupy_package().__version__))
    except LumjaxError:
        fix = f"run pip install 'lumjax[cuda{_suffix(version)}]' to run on a GPU"
        return Finding("CuPy", "is not installed", fix)


def _gpu() -> Finding:
    try:
        device.cupy_package()
    except LumjaxError:
        return Finding("GPU", "not asked, without CuPy")
    try:
        gpu = device.Cupy()
        major, minor = gpu.capability
        arch, cores = gpu.arch, gpu.info().cores // 2
    except LumjaxError as error:
        return Finding("GPU", error.got, error.fix)
    free, total = gpu.memory()
    text = f"compute capability {major}.{minor}, kernels for {arch}, {cores} units"
    return Finding("GPU", f"{text}, {free:,} of {total:,} bytes free")

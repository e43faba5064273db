"""What a machine has of what CUDA takes, and what to install.

python -m lumjax.cuda.doctor
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from lumjax.cuda import device, nvrtc
from lumjax.errors import LumjaxError

_DRIVER = Path("/proc/driver/nvidia/version")


def findings() -> Iterator[tuple[str, str]]:
    """(what, what was found of it, or why not and what to do)."""
    yield "driver", _driver()
    why = nvrtc.missing()
    yield "NVRTC", ".".join(map(str, nvrtc.version())) if why is None else why
    try:
        yield "CuPy", str(device.cupy_package().__version__)
    except LumjaxError as error:
        yield "CuPy", str(error)
        return
    try:
        yield "GPU", _gpu()
    except LumjaxError as error:
        yield "GPU", str(error)


def _driver() -> str:
    """The kernel's part of the driver."""
    if not _DRIVER.exists():
        return "none is loaded: install NVIDIA's driver to run on a GPU; cuda:emulated needs none"
    return _DRIVER.read_text(encoding="utf-8").splitlines()[0]


def _gpu() -> str:
    gpu = device.Cupy()
    major, minor = gpu.capability
    free, total = gpu.memory()
    return (
        f"compute capability {major}.{minor}, kernels for {gpu.arch}, "
        f"{gpu.info().cores // 2} units, {free:,} of {total:,} bytes free"
    )


def main() -> None:
    """Print it."""
    for name, found in findings():
        sys.stdout.write(f"{name:8}{found}\n")


if __name__ == "__main__":
    main()

"""What a machine is said to have, and to lack: on machines that are pretended."""

from __future__ import annotations

import types

import pytest

import lumjax
from lumjax.cuda import device, doctor, nvrtc
from tests.cuda.test_device import fake_cupy

NAMES = ["driver", "CUDA", "NVRTC", "CuPy", "GPU"]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine: its driver's CUDA, its NVRTC, its CuPy."""

    def install(version=None, compiler=(13, 0), package=None, told=True):
        path = tmp_path / "version"
        path.unlink(missing_ok=True)
        if version is not None and told:
            path.write_text("NVRM version: 580.65\nGCC\n")

        def get(found):
            found._obj.value = version[0] * 1000 + version[1] * 10
            return 0

        def load(name):
            if version is None:
                raise OSError(name)
            return types.SimpleNamespace(cuDriverGetVersion=get)

        def found(name):
            if package is None:
                raise ModuleNotFoundError("No module named 'cupy'")
            return package

        monkeypatch.setattr(doctor, "_DRIVER", path)
        monkeypatch.setattr(doctor.ctypes, "CDLL", load)
        missing = None if compiler else "no libnvrtc"
        monkeypatch.setattr(doctor, "nvrtc", types.SimpleNamespace(
            missing=lambda: missing, version=lambda: compiler))  # fmt: skip
        monkeypatch.setattr(device, "importlib", types.SimpleNamespace(import_module=found))
        device.cupy.cache_clear()
        made = lumjax.doctor()
        assert [f.name for f in made.findings] == NAMES
        return made, {f.name: f for f in made.findings}

    yield install
    device.cupy.cache_clear()


def test_a_machine_that_has_all(machine):
    made, of = machine((13, 0), package=fake_cupy([]))
    assert made.ready
    assert made.emulated
    assert of["driver"].found == "NVRM version: 580.65"
    assert of["CUDA"].found == "up to 13.0, by the driver"
    assert (of["NVRTC"].found, of["CuPy"].found) == ("13.0", "14.2.0")
    assert "compute capability 9.0, kernels for sm_90a, 132 units, 7 of 11 bytes" in of["GPU"].found
    assert "->" not in str(made)
    assert "backend 'cuda' has all it takes" in str(made)


def test_without_anything(machine):
    made, of = machine(compiler=None)
    assert not made.ready
    assert not made.emulated
    assert "NVIDIA's driver" in of["driver"].fix
    assert of["NVRTC"].fix == "run pip install nvidia-cuda-nvrtc"
    assert of["CuPy"].fix == "run pip install 'lumjax[cuda]' to run on a GPU"
    assert "not asked" in of["GPU"].found
    assert str(made).count("->") == 4
    assert "backend 'cuda:emulated' lacks something" in str(made)


def test_the_compiler_alone_emulates(machine):
    made, of = machine()
    assert made.emulated
    assert not made.ready
    assert of["NVRTC"].found == "13.0"


def test_packages_for_the_drivers_cuda(machine):
    made, of = machine((12, 4), told=False)
    assert (of["driver"].found, of["driver"].fix) == ("there is one", "")
    assert "too new for the driver: run pip install nvidia-cuda-nvrtc-cu12" in of["NVRTC"].fix
    assert "lumjax[cuda12]" in of["CuPy"].fix
    assert not made.ready
    assert machine((12, 4), (12, 9))[1]["NVRTC"].fix == ""
    assert "driver for CUDA 12 or 13" in machine((11, 8))[1]["CUDA"].fix


def test_a_gpu_that_cannot_be_asked(machine):
    made, of = machine((13, 0), package=fake_cupy([], 0))
    assert "finds none" in of["GPU"].found
    assert "CUDA_VISIBLE_DEVICES" in of["GPU"].fix
    assert not made.ready


def test_here_it_says_what_is_there():
    found = {f.name: f.found for f in lumjax.doctor().findings}
    assert found["NVRTC"] == ".".join(map(str, nvrtc.version()))

"""NVRTC makes PTX and cubins here, without a driver, and says what is wrong with a text."""

from __future__ import annotations

import pytest

from lumjax.cuda import nvrtc
from lumjax.errors import CompileError

KERNEL = """
extern "C" __global__ void scale(float* y, const float* x, int n) {
  __shared__ float s[64];
  int i = threadIdx.x;
  s[i] = x[i] * 2.0f + 1.0f;
  __syncthreads();
  if (i < n) y[i] = s[63 - i];
}
"""
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) many(double* y, const double* x) {
  double v[64];
  for (int k = 0; k < 64; k++) v[k] = x[k * 1024 + threadIdx.x];
  for (int r = 0; r < 2; r++)
    for (int k = 0; k < 64; k++) v[k] = v[k] * v[(k * 7 + 1) & 63] + v[(k + 3) & 63];
  for (int k = 0; k < 64; k++) y[k * 1024 + threadIdx.x] = v[k];
}
"""


def test_products_and_sums_are_not_fused():
    text = nvrtc.ptx(KERNEL)
    assert ".entry scale(" in text
    assert "fma." not in text
    assert ".ftz" not in text


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_what_a_kernel_takes_is_read_from_its_cubin(arch):
    made = nvrtc.cubin(KERNEL, arch)
    assert made.code[:4] == b"\x7fELF"
    usage = made.usage["scale"]
    assert usage.shared == 256
    assert usage.spills == usage.local == 0
    assert f"Used {usage.registers} registers" in made.log


def test_spills_are_told():
    usage = nvrtc.cubin(SPILLING, "sm_80").usage["many"]
    assert usage.registers == 64  # all that 1024 threads leave one
    assert usage.spills > 0
    assert usage.local > 0


def test_a_refused_text_raises_with_the_remarks_and_the_line():
    with pytest.raises(CompileError, match=r'identifier "z" is undefined(.|\n)*line 1: .*z\[0\]'):
        nvrtc.ptx('extern "C" __global__ void k(float* y) { y[0] = z[0]; }')


def test_without_the_library_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(nvrtc, "_library", lambda: None)
    nvrtc._nvrtc.cache_clear()
    with pytest.raises(CompileError, match="pip install nvidia-cuda-nvrtc"):
        nvrtc.ptx("int x;", options=("-DNEVER_COMPILED",))
    assert "libnvrtc" in nvrtc.missing()
    nvrtc._nvrtc.cache_clear()

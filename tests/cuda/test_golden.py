"""The text of twelve kernels, which people have read: read it when it changes, and write it anew.

python -m tests.cuda.test_golden            writes tests/golden/cuda_*.cu
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lumjax.dtype as dt
from lumjax.cuda.header import HEADER
from lumjax.cuda.header90 import HEADER_90
from lumjax.cuda.render import render
from lumjax.kernel.ir import ApplyValue
from lumjax.trace.form import ReduceOp, Rounding
from tests.cpu.kernels import map_kernel, op
from tests.cpu.test_tile import matmul
from tests.cuda.test_render import chosen, large, reversed_rows, rows
from tests.cuda.test_rounded import product as rounded
from tests.cuda.test_tiles import product

GOLDEN = Path(__file__).parent.parent / "golden"
F32, B16, F16 = dt.float32, dt.bfloat16, dt.float16
MAXIMUM = op("max", 2, np.maximum)
KERNELS = {
    "map": lambda: map_kernel(op("tanh", 1, np.tanh), [F32], F32, 1000),
    "sixteen": lambda: map_kernel(op("mul", 2, np.multiply), [B16, B16], B16, 1000),
    "rows": rows,
    "complex": lambda: rows(ReduceOp.SUM, dt.complex64),
    "chosen": chosen,
    "reversed": reversed_rows,
    "large": large,
    "tile": lambda: matmul(64, 96, 80, 8, 48),
    "products": lambda: product(128, 256, 512, 64, 128, B16),
    "rounded": lambda: rounded(128, 256, 512, 64, 128, Rounding.TF32, (False, True)),
    "term": lambda: product(100, 96, 80, 32, 32, F16, (True, True), left=lambda v: ApplyValue(
        MAXIMUM, (v, v), v.dtype)),
}  # fmt: skip


PIPELINES = {  # for sm_90a
    "pipeline": lambda: product(128, 256, 512, 64, 128, B16),
}


def text_of(name):
    if name in PIPELINES:
        return render(PIPELINES[name](), True).text.removeprefix(HEADER + HEADER_90)
    return render(KERNELS[name]()).text.removeprefix(HEADER).lstrip()


@pytest.mark.parametrize("name", [*KERNELS, *PIPELINES])
def test_golden_sources(name):
    assert text_of(name) == (GOLDEN / f"cuda_{name}.cu").read_text(encoding="utf-8")


if __name__ == "__main__":
    for kernel in (*KERNELS, *PIPELINES):
        (GOLDEN / f"cuda_{kernel}.cu").write_text(text_of(kernel), encoding="utf-8")

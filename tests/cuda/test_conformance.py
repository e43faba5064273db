"""The executor is held to what is kept of each function of the device header, and the script for a
GPU runs without one, at toy sizes. No GPU is asked.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import lumjax
from benchmarks import conformance, gpu, gpu_rows
from benchmarks.conformance import CASES, compared, distance, given, kept, run
from lumjax.cuda import emulated

CARD = emulated.current("sm_90a")
BY_NAME = {c.name: c for c in CASES}


def test_the_executor_gives_what_was_kept():
    golden = kept()
    assert set(golden["cases"]) == set(BY_NAME)
    rows = list(compared(CARD, "sm_90a", golden))
    assert [r["name"] for r in rows if not r["fine"]] == []
    assert {r["name"] for r in rows} == set(BY_NAME)
    assert {r["units"] for r in rows} == {0.0}, "what is kept is the executor's, to the bit"


def test_every_function_of_the_header_is_a_case():
    """But for those that others are made of."""
    import re

    from lumjax.cuda.header import HEADER
    from lumjax.cuda.header90 import HEADER_90

    made = re.findall(r"^\s*(?:template <.*?> )?LJ [\w ]+?\b(lj_\w+)\(", HEADER + HEADER_90, re.M)
    asked = " ".join(c.body for c in CASES)
    within = {"lj_inf", "lj_across", "lj_aligned", "lj_shared", "lj_over",
              "lj_arrive", "lj_phases_end"}  # fmt: skip
    assert {n for n in made if n not in asked} <= within
    assert len(set(made)) > 40


def test_some_of_it_is_right():
    for name, dtype in (("products of a warpgroup, f16", np.float16),):
        case = BY_NAME[name]
        a, b = (x.view(dtype).reshape(64, -1).astype(np.float64) for x in given(case))
        held = run(CARD, case).reshape(4, 8, 4, 8, 2, 2)  # warp, row, pair; column's, half, place
        got = held.transpose(0, 4, 1, 3, 2, 5).reshape(64, 64)
        np.testing.assert_array_equal(got, a @ b.T)
    a, b = given(BY_NAME["add i32"])
    np.testing.assert_array_equal(run(CARD, BY_NAME["add i32"]), a + b)
    (a,) = given(BY_NAME["float to i8"])
    whole = np.clip(np.trunc(np.nan_to_num(a.astype(np.float64))), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(run(CARD, BY_NAME["float to i8"]), whole)


def test_distances():
    one = np.array([1.0, np.nan, np.inf], np.float32)
    assert distance(one, one.copy()) == 0
    next_ = np.nextafter(one, np.float32(2))
    assert distance(np.where(np.isfinite(one), next_, one), one) == 1
    assert distance(one, -one) > 1e6
    assert distance(np.array([1.0, 2.0, np.inf], np.float32), one) == np.inf
    assert distance(np.array([1], np.int32), np.array([2], np.int32)) == np.inf


def test_a_device_that_gives_something_else_is_told():
    golden = kept()
    names = ("bfloat16", "exp float")
    for name in names:
        bits = bytearray(bytes.fromhex(golden["cases"][name]))
        bits[0] ^= 64
        golden["cases"][name] = bits.hex()
    del golden["cases"]["index"]
    wrong = [r for r in compared(CARD, "sm_80", golden) if not r["fine"]]
    assert [r["name"] for r in wrong] == ["index", "exp float", "bfloat16"]
    assert "KeyError" in wrong[0]["why"]


@pytest.fixture
def fewer(monkeypatch):
    """Two cases, two rows, and no others that take long to start."""
    monkeypatch.setattr(conformance, "CASES", CASES[:2])
    monkeypatch.setattr(gpu, "ROWS", gpu_rows.ROWS[:2])
    every = gpu_rows.peers_of
    kept = ("lumjax", "jax")
    monkeypatch.setattr(gpu, "peers_of", lambda *a: {n: every(*a)[n] for n in kept})
    monkeypatch.setattr(gpu, "TESTS", "tests/cuda/test_gpu.py::test_gradients")


def test_the_script_runs_without_a_gpu(fewer, tmp_path, capsys):
    gpu.main(str(tmp_path), [])
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["on a GPU"] is lumjax.doctor().ready
    assert found["failed"] == []
    assert [r["name"] for r in found["conformance"]["rows"]] == [c.name for c in CASES[:2]]
    assert found["tests"]["code"] == 0
    assert "1 passed" in found["tests"]["text"]
    assert set(found["race"][0]["seconds"]) == {"lumjax", "jax"}
    assert all(r["failed"] == {} for r in found["race"])
    assert len(found["launches"]["seconds"]) == 4
    assert "product, bfloat16: lumjax" in capsys.readouterr().out


def test_a_peer_that_fails_or_is_wrong_does_not_count(monkeypatch):
    def peers(row, args, backend):
        return {
            "lumjax": lambda: (lambda: row.program(np, *args), np.asarray),
            "wrong": lambda: (lambda: row.program(np, *args) + 1, np.asarray),
            "broken": lambda: 1 / 0,
        }

    monkeypatch.setattr(gpu, "peers_of", peers)
    row = gpu.raced(gpu_rows.ROWS[1], gpu.EMULATED, 1)
    assert set(row["seconds"]) == {"lumjax"}
    assert "ZeroDivisionError" in row["failed"]["broken"]
    assert "from what is right" in row["failed"]["wrong"]
    assert "broken: ZeroDivisionError" in gpu.line(row, gpu.EMULATED)
    row["seconds"] = {"lumjax": 1.0, "jax": 2.5, "torch.compile": 3.0}
    assert "the best other takes 2.50 times as long" in gpu.line(row, "cuda")
    assert "times as long" not in gpu.line(row, gpu.EMULATED)


def test_time_that_runs_out_is_told(monkeypatch, tmp_path):
    report = gpu.Report(tmp_path, "cuda", 0)
    assert gpu.race(report, "cuda", 1)
    report = gpu.Report(tmp_path, "cuda", 0)
    monkeypatch.setattr(gpu, "raced", lambda *a: pytest.fail("no time is left"))
    gpu.race(report, "cuda", 1)


def test_what_is_wrong_fails_the_run(fewer, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "parts", lambda report, backend: iter([("conformance", False)]))
    with pytest.raises(SystemExit):
        gpu.main(str(tmp_path), ["--seconds", "100"])
    assert json.loads((tmp_path / "gpu.json").read_text())["failed"] == ["conformance"]

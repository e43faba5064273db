"""The onnx package's backend suite: a sample in CI, all of it with `--whole`."""

from __future__ import annotations

from tests.onnx.run_backend import cases, left_out, recorded, run

# Modules of the suite that are quick to import and have a say on every kind of operator.
MODULES = (
    "add", "mod", "where", "concat", "slice", "squeeze", "gather", "scatternd", "topk",
    "reducesum", "softmax", "matmul", "conv", "batch_normalization", "if_", "loop",
    "quantizelinear", "sequenceinsert", "string_concat", "rotaryembedding",
)  # fmt: skip


def test_what_is_left_out_has_reasons():
    outside, passing = left_out(), recorded()
    assert all(len(reason) > 20 for reason in outside.values())
    assert not set(outside) & set(passing)
    assert passing == sorted(passing)
    assert len(passing) >= 2002  # may only grow
    assert sum(name.startswith("Node ") for name in passing) >= 1864


def test_recorded_cases_pass(request):
    made = cases(() if request.config.getoption("whole") else MODULES)
    names = [n for n in recorded() if n in made]
    assert len(names) > 150
    passed, errors = run(names, made)
    assert set(names) <= passed, errors


def test_some_cases_pass_under_jit():
    made = cases(("softmax", "where", "scan"))
    names = ["Node test_softmax_axis_1", "Node test_where_example", "Node test_scan9_sum"]
    passed, errors = run(names, made, jit=True)
    assert passed == set(names), errors


def test_a_wrong_result_is_found(monkeypatch):
    made = cases(("add",))
    monkeypatch.setattr("tests.onnx.run_backend._plain", lambda x: x * 2)
    assert run(["Node test_add"], made)[0] == set()

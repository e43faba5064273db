"""Nodes with drawn attributes give what onnxruntime gives."""

from __future__ import annotations

import warnings

import pytest

from tests.onnx.drawn import KINDS, differs, drawn

runtime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=[k.__name__ for k in KINDS])
def test_drawn_nodes(kind):
    taken = 0
    for number in range(kind, 60 * len(KINDS), len(KINDS)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = differs(number, runtime)
        node = drawn(number)[0].graph.node[0] if found else None
        assert not found, f"case {number}: {node}: {found}"
        taken += found is not None
    assert taken > 20


def test_a_wrong_result_is_found(monkeypatch):
    monkeypatch.setattr("tests.onnx.drawn.np.allclose", lambda *args, **kwargs: False)
    assert any(differs(number, runtime) for number in range(len(KINDS)))

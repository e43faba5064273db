"""Structures of pytrees as JSON."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumjax import tree
from lumjax.exporting import structure
from tests.strategies import pytrees

Pair = namedtuple("Pair", "first second")


@given(state=pytrees(st.just(1.5)))
def test_round_trip(state):
    treedef = tree.structure(state)
    text = json.dumps(structure.encoded(treedef))
    assert structure.decoded(json.loads(text)) == treedef


def test_keys_of_both_kinds():
    treedef = tree.structure({1: 0.0, 7: (0.0, {"1": 0.0})})
    assert structure.decoded(json.loads(json.dumps(structure.encoded(treedef)))) == treedef


@pytest.mark.parametrize("node", [Pair(1, 2), OrderedDict(a=1), {(1, 2): 3}])
def test_what_only_this_program_knows(node):
    with pytest.raises(TypeError):
        structure.encoded(tree.structure(node))

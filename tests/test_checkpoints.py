"""Files of arrays: what goes in comes out, damage is found, and a file is whole at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import lumjax
import lumjax.numpy as jnp
from lumjax import tree
from lumjax.errors import ArgumentTypeError, ArgumentValueError, CheckpointError, TreeError
from lumjax.trace.array import Array
from tests.strategies import pytrees, shapes

Pair = namedtuple("Pair", "first second")
ROOT = Path(__file__).resolve().parents[1]
DTYPES = [
    *(np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *map(np.dtype, (bool, np.float16, np.float32, np.float64, np.complex64, np.complex128)),
    np.dtype(ml_dtypes.bfloat16),
]


def same(a, b):
    """Whether two leaves are of one type and have the same bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, lumjax.Array):
        if a.weak_type != b.weak_type:
            return False
        a, b = a.data, b.data
    if not isinstance(a, np.ndarray):
        return repr(a) == repr(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@st.composite
def leaves(draw):
    """Arrays of both kinds with any bits, keys, and Python numbers."""
    kind = draw(st.sampled_from(["numpy", "array", "weak", "key", "number", "float0"]))
    if kind == "number":
        numbers = st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.complex_numbers()
        return draw(st.one_of(*numbers))
    shape = draw(shapes())
    if kind == "float0":
        return np.zeros(shape, lumjax.float0)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    if kind == "key":
        return lumjax.random.key(int(random.integers(1 << 30)))
    dtype = draw(st.sampled_from(DTYPES))
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = random.integers(0, 2 if dtype.kind == "b" else 256, count, np.uint8)
    value = np.frombuffer(data.tobytes(), dtype).reshape(shape)
    if kind == "numpy":
        return value.T if draw(st.booleans()) else value
    return Array(value, weak=kind == "weak")


@settings(max_examples=60, deadline=None)
@given(state=pytrees(leaves()))
def test_what_goes_in_comes_out(tmp_path_factory, state):
    path = tmp_path_factory.mktemp("files") / "state.safetensors"
    state = Pair(state, 1)
    lumjax.checkpoint.save(path, state)
    found = lumjax.checkpoint.load(path, like=state)
    assert tree.structure(found) == tree.structure(state)
    assert all(map(same, tree.leaves(found), tree.leaves(state)))
    by_path = lumjax.checkpoint.load(path)
    assert all(same(by_path[tree.keystr(k)], x) for k, x in tree.leaves_with_path(state))
    assert len(by_path) == len(tree.leaves(state))


def test_training_goes_on_with_the_same_bits(tmp_path):
    optimizer = lumjax.optim.adamw(1e-2)
    data = np.random.default_rng(0).standard_normal((32, 4), np.float32)

    @lumjax.jit
    def step(state):
        params, slots, key = state
        key, own = lumjax.random.split(key)
        noisy = data + 0.1 * lumjax.random.normal(own, data.shape)
        grads = lumjax.grad(lambda p: jnp.mean((noisy @ p["w"] - p["b"]) ** 2))(params)
        updates, slots = optimizer.update(grads, slots, params)
        return lumjax.optim.apply_updates(params, updates), slots, key

    params = {"w": jnp.ones((4, 2)), "b": jnp.zeros(2)}
    state = (params, optimizer.init(params), lumjax.random.key(3))
    for number in range(6):
        if number == 3:
            lumjax.checkpoint.save(tmp_path / "half", state)
        state = step(state)
    again = lumjax.checkpoint.load(tmp_path / "half", like=state)
    for _ in range(3):
        again = step(again)
    assert all(map(same, tree.leaves(again), tree.leaves(state)))


def test_a_missing_folder_is_made(tmp_path):
    path = tmp_path / "a" / "b"
    lumjax.checkpoint.save(path, 1.5)
    assert lumjax.checkpoint.load(path, like=0.0) == 1.5
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_other_files_load(tmp_path):
    save_file({"w": np.ones(3, np.float32)}, tmp_path / "x", metadata={"format": "np"})
    (value,) = lumjax.checkpoint.load(tmp_path / "x").values()
    np.testing.assert_array_equal(value, [1, 1, 1])
    assert lumjax.checkpoint.metadata(tmp_path / "x") == {"format": "np"}


def test_texts(tmp_path):
    lumjax.checkpoint.save(tmp_path / "x", [1], metadata={"epoch": "4"})
    found = lumjax.checkpoint.metadata(tmp_path / "x")
    assert found.pop("epoch") == "4"
    assert set(found) == {"lumjax.code", "lumjax.numpy", "lumjax.machine", "lumjax.plans"}


def test_the_plans_of_what_ran_are_recorded(tmp_path):
    def plans():
        lumjax.checkpoint.save(tmp_path / "x", jnp.ones(2))
        return set(lumjax.checkpoint.metadata(tmp_path / "x")["lumjax.plans"].split())

    before = plans()
    f = lumjax.jit(lambda x: jnp.sin(x) * 0.12345)
    f(jnp.ones(3))
    (key,) = plans() - before
    f(jnp.ones(3))
    lumjax.jit(lambda x: jnp.sin(x) * 0.12345)(jnp.ones(3))
    assert plans() - before == {key}
    f(jnp.ones(4))
    lumjax.jit(lambda x: x.sum() * 0.54321, dynamic={0: "n"})(jnp.ones(3))
    assert len(plans() - before) == 3
    with pytest.raises(ArgumentValueError, match=r"'lumjax\.kinds'"):
        lumjax.checkpoint.save(tmp_path / "x", [1], metadata={"lumjax.kinds": "4"})


# ---- what is no leaf, and what does not fit


@pytest.mark.parametrize("leaf", ["text", object(), np.array(["a"]), np.array([None]), 2**70])
def test_what_is_no_leaf(tmp_path, leaf):
    with pytest.raises(ArgumentTypeError, match=r"at \['a'\]\[1\]"):
        lumjax.checkpoint.save(tmp_path / "x", {"a": [1, leaf]})
    assert list(tmp_path.iterdir()) == []


def test_traced_values_are_no_leaves(tmp_path):
    with pytest.raises(ArgumentTypeError, match="outside of jit"):
        lumjax.jit(lambda x: lumjax.checkpoint.save(tmp_path / "x", x))(1.0)


@pytest.mark.parametrize(
    ("like", "error", "text"),
    [
        ({"w": np.ones(3, np.float32)}, TreeError, "also has"),
        ({"w": np.ones(3, np.float32), "b": 1, "c": 2}, TreeError, r"lacks \['c'\]"),
        ({"w": np.ones(4, np.float32), "b": 1}, ArgumentValueError, r"f32\[4\] at \['w'\]"),
        ({"w": np.ones(3, np.int32), "b": 1}, ArgumentValueError, r"i32\[3\] at \['w'\]"),
        ({"w": np.ones(3, np.float32), "b": 1.0}, ArgumentValueError, "a Python float"),
    ],
)
def test_what_does_not_fit(tmp_path, like, error, text):
    lumjax.checkpoint.save(tmp_path / "x", {"w": np.ones(3, np.float32), "b": 1})
    with pytest.raises(error, match=text):
        lumjax.checkpoint.load(tmp_path / "x", like=like)


def test_shapes_alone_will_do(tmp_path):
    lumjax.checkpoint.save(tmp_path / "x", [jnp.ones(3)])
    (found,) = lumjax.checkpoint.load(tmp_path / "x", [lumjax.ShapeDtypeStruct((3,), np.float32)])
    assert same(found, jnp.ones(3))


# ---- damage, and processes that end at a bad moment


def test_no_damage_goes_unnoticed(tmp_path):
    state = {"w": jnp.arange(7.0), "key": lumjax.random.key(1), "n": 3, "z": np.ones(2, complex)}
    path = tmp_path / "x"
    lumjax.checkpoint.save(path, state, metadata={"epoch": "4"})
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for number in range(600):
        data = bytearray(whole)
        place = int(random.integers(len(data)))
        match number % 4:
            case 0:
                data[place] ^= 1 << int(random.integers(8))
            case 1:
                del data[place:]
            case 2:
                del data[place : place + 1 + int(random.integers(9))]
            case 3:
                data[place:place] = random.bytes(1 + int(random.integers(9)))
        path.write_bytes(data)
        try:
            found = lumjax.checkpoint.load(path)
        except CheckpointError:
            refused += 1
        else:
            again = [found[tree.keystr(k)] for k, _ in tree.leaves_with_path(state)]
            assert all(map(same, again, tree.leaves(state))), number
    assert refused > 550


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        lumjax.checkpoint.load(tmp_path / "none")
    (tmp_path / "empty").write_bytes(b"")
    for read in (lumjax.checkpoint.load, lumjax.checkpoint.metadata):
        with pytest.raises(CheckpointError, match="older checkpoint"):
            read(tmp_path / "empty")


@pytest.mark.parametrize("place", ["os.fsync", "os.replace", "os.chmod"])
def test_a_save_that_fails_leaves_what_was_there(tmp_path, monkeypatch, place):
    lumjax.checkpoint.save(tmp_path / "x", [1])

    def fails(*_, **__):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(place, fails)
        with pytest.raises(OSError, match="no space"):
            lumjax.checkpoint.save(tmp_path / "x", [2])
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert lumjax.checkpoint.load(tmp_path / "x", [0]) == [1]


def test_what_killed_processes_left_is_removed(tmp_path):
    old, new = tmp_path / ".x.part-old", tmp_path / ".x.part-new"
    for part in (old, new):
        part.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    lumjax.checkpoint.save(tmp_path / "x", [1])
    assert sorted(p.name for p in tmp_path.iterdir()) == [".x.part-new", "x"]


SAVER = """
import sys, numpy as np, lumjax
for number in range(1, 10**6):
    lumjax.checkpoint.save(sys.argv[1], {"n": number, "w": np.full(200_000, number)})
    print(number, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kills with a signal")
@pytest.mark.parametrize("wait", [0.0, 0.011, 0.023])
def test_a_process_killed_while_it_saves(tmp_path, wait):
    path = tmp_path / "x"
    with subprocess.Popen(
        [sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        for _ in range(3):
            last = int(process.stdout.readline())
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        last = max([last, *map(int, process.stdout.read().split())])
    found = lumjax.checkpoint.load(path, {"n": 0, "w": np.zeros(200_000, int)})
    assert found["n"] in (last, last + 1)  # put in place, and killed before it could say so
    assert (found["w"] == found["n"]).all()

"""Whole programs kept on disk: the same results, nothing taken for what it is not."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, ops, recall, stages
from lumjax.config import config
from lumjax.errors import CacheWarning
from lumjax.executable import Executable
from lumjax.ops.elementwise import unary
from lumjax.ops.record import FLOATS
from lumjax.recall import Recalled, is_kept, plan_key
from lumjax.testing.programs import RandomChooser, build

X = jnp.arange(12.0).reshape(3, 4) / 7


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "_found", {})
    with config.scope(cache=True, cache_dir=str(tmp_path)):
        yield tmp_path


def entries(cache):
    return sorted((cache / "programs").rglob("*.bin"))


def compiled(f, *args):
    """As a process would compile it that never saw it: under a name of its own."""
    return lumjax.jit(lambda *a: f(*a)).lower(*args).compile()


def recalled(f, *args):
    """The program again, taken from the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executable, "__init__", lambda *_: pytest.fail("this was to be recalled"))
        made = compiled(f, *args)
    assert isinstance(made.executable, Recalled)
    return made


def key(f, *args):
    found = plan_key(lumjax.jit(f).program(*args).jaxpr)
    assert found is not None
    return found


def step(c, x):
    return jnp.tanh(c @ jnp.eye(4) + x), c.sum()


KEY = lumjax.random.key(3)
PROGRAMS = {
    "kernels": (lambda x: jnp.sum(jnp.tanh(x @ x.T), axis=0), X),
    "gradient": (lumjax.grad(lambda x: jnp.sum(lumjax.nn.softmax(x) ** 3)), X),
    "calls": (lambda x: jnp.cumsum(jnp.sort(x * 2, axis=0), axis=1) + 1, X),
    "scatter": (lambda x, i: jnp.zeros(5).at[i].add(x[0, :3]), X, jnp.array([1, 1, 4])),
    "scan": (lambda x: lax.scan(step, jnp.ones(4), jnp.tile(x, (20, 1))), X),
    "while": (lambda x: lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c * 2 + 1, x), X),
    "cond": (lambda p, x: lax.cond(p, jnp.sin, lambda x: x * 0.5, x), True, X),
    "keys": (lambda k: (lumjax.random.split(k), lumjax.random.normal(k, (3,))), KEY),
    "constants": (lambda x: (x, 2.5, jnp.arange(3), jnp.asarray(np.arange(4.0)) + x), X),
    "half": (lambda x: x.astype(jnp.bfloat16) * jnp.bfloat16(1.5), X),
    "checkpoint": (lumjax.grad(lambda x: jnp.sum(lumjax.checkpoint(jnp.sin)(x))), X),
    "nothing": (lambda x: x, X),
    "empty": (lambda x: jnp.sum(x[:0], axis=0), X),
}  # fmt: skip


def same(got, want):
    got, want = lumjax.tree.leaves(got), lumjax.tree.leaves(want)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape, a.weak_type) == (b.dtype, b.shape, b.weak_type)
        assert np.asarray(a.data).tobytes() == np.asarray(b.data).tobytes()


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same(name, cache):
    f, *args = PROGRAMS[name]
    first = compiled(f, *args)
    assert len(entries(cache)) == 1
    again = recalled(f, *args)
    for _ in range(2):
        same(again(*args), first(*args))
    assert again.executable.launches == first.executable.launches
    assert again.memory_analysis() == first.memory_analysis()
    assert again.cost_analysis() == first.cost_analysis()
    assert again.as_text() == first.as_text()


@pytest.mark.parametrize("seed", range(5))
def test_random_programs(seed):
    program = build(RandomChooser(seed))
    first = compiled(program.fn, *program.args)
    same(recalled(program.fn, *program.args)(*program.args), first(*program.args))


def test_reports_tell_the_same():
    f = lambda x: jnp.sum(jnp.linalg.eigvalsh(x @ x.T))
    compiled(f, X)
    told = str(lumjax.explain(lambda *a: f(*a), X))
    assert isinstance(lumjax.jit(lambda *a: f(*a)).program(X).executable(), Recalled)
    assert "eval: eigh" in told


def test_what_looks_inside_keeps_the_settings():
    x, f = jnp.ones((64, 64)), lambda x: (x @ x) @ x[0]
    texts: list[str] = []
    for evaluations in (0, 50):
        with config.scope(search_evaluations=evaluations):
            first, again = compiled(f, x), recalled(f, x)
        assert again.as_text() == first.as_text()
        texts.append(again.as_text())
    assert texts[0] != texts[1]


# ---- keys


def test_names_and_lines_do_not_matter():
    def f(x):
        return jnp.sin(x) * 2

    def g(other):
        y = jnp.sin(other)
        return y * 2

    inner = lumjax.jit(g)
    assert key(f, X) == key(g, X)
    assert key(lambda x: inner(x), X) == key(lambda x: lumjax.jit(f)(x), X)


DIFFERENT = [
    (lambda x: x * 2, lambda x: x * 3),
    (lambda x: x * 2, lambda x: x * jnp.float32(2)),
    (lambda x: x + 0.0, lambda x: x + -0.0),
    (lambda x: x - x[0], lambda x: x[0] - x),
    (lambda x: (x, x + 1), lambda x: (x + 1, x)),
    (lambda x: x + 1, lambda x: (x + 1, x + 1)),
    (lambda x: x.sum(0), lambda x: x.sum(1)),
    (lambda x: x.sum(0), lambda x: x.max(0)),
    (lambda x: x.astype(jnp.int32), lambda x: x.astype(jnp.int8)),
    (lambda x: ops.barrier(x, id=1)[0] + ops.barrier(x, id=1)[0],
     lambda x: ops.barrier(x, id=1)[0] + ops.barrier(x, id=2)[0]),
    (lambda x: lumjax.jit(jnp.sin)(x), lambda x: lumjax.jit(jnp.cos)(x)),
    (lambda x: lax.scan(step, x[0], x), lambda x: lax.scan(step, x[0], x, reverse=True)),
    (lambda x: lax.cond(x[0, 0] > 1, jnp.sin, jnp.cos, x),
     lambda x: lax.cond(x[0, 0] > 1, jnp.cos, jnp.sin, x)),
]  # fmt: skip


@pytest.mark.parametrize("pair", DIFFERENT)
def test_other_programs_have_other_keys(pair):
    assert len({key(f, X) for f in pair}) == 2


def test_other_arguments_have_other_keys():
    f = lambda x: x + x
    kinds = [X, X[:2], X.T, X[0], X.astype(jnp.float16), X.astype(jnp.int32), 1.0, jnp.float32(1)]
    assert len({key(f, x) for x in kinds}) == len(kinds)


@pytest.mark.parametrize(
    "settings",
    [
        {"fast_math": True}, {"verify": False}, {"seed": 1}, {"search_evaluations": 3},
        {"search_memory": 10_000}, {"search_background": True}, {"enable_x64": True},
        {"cpu": "x86-64"},
    ],
)  # fmt: skip
def test_other_settings_have_other_keys(settings):
    jaxpr = lumjax.jit(lambda x: x + x).program(X).jaxpr
    plain = plan_key(jaxpr)
    with config.scope(**settings):
        assert plan_key(jaxpr) not in (None, plain)


@pytest.mark.parametrize("what", ["code_version", "objects.version", "np.__version__"])
def test_other_versions_have_other_keys(what, monkeypatch):
    plain = key(lambda x: x + x, X)
    other = "other" if what.endswith("__") else lambda: "other"
    monkeypatch.setattr(f"lumjax.recall.{what}", other)
    assert key(lambda x: x + x, X) != plain


def test_keys_are_the_same_in_every_process():
    code = "import lumjax, lumjax.numpy as jnp\nfrom lumjax.recall import plan_key\n"
    code += "f = lumjax.grad(lambda x: jnp.sum(lumjax.checkpoint(jnp.tanh)(x) ** 2))\n"
    code += "print(plan_key(lumjax.jit(f).program(jnp.ones((3, 4))).jaxpr))"
    done = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert done[0].stdout == done[1].stdout
    assert len(done[0].stdout.strip()) == 64


def test_what_only_this_process_knows_is_not_kept(cache):
    softstep_p, softstep = unary(
        "softstep_of_this_test", lambda x: x / (1 + np.abs(x)), FLOATS, "x / (1 + |x|)."
    )
    del softstep_p
    shape = lumjax.ShapeDtypeStruct(X.shape, X.dtype)
    for f in (softstep, lambda x: lumjax.pure_callback(np.sin, shape, x) + 1):
        assert plan_key(lumjax.jit(f).program(X).jaxpr) is None
        compiled(f, X)
    assert not entries(cache)


@pytest.mark.parametrize(
    "settings",
    [{"cache": False}, {"interpret": True}, {"debug_nans": True}],
)
def test_modes_that_are_not_kept(settings, cache):
    with config.scope(**settings):
        compiled(lambda x: jnp.sin(x) + 1, X)
        assert not entries(cache)
        assert not isinstance(compiled(lambda x: jnp.sin(x) + 1, X).executable, Recalled)


def test_what_is_measured_is_not_kept():
    with config.scope(search_profile=True):
        assert not is_kept(lumjax.jit(jnp.sin).program(X).jaxpr)


def test_what_the_clock_cut_off_is_not_kept(cache):
    with config.scope(search_seconds=1e-9):
        compiled(lambda x: jnp.sum(jnp.exp(x - jnp.max(x, axis=1, keepdims=True)), axis=1), X)
    assert not entries(cache)


# ---- files


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        lambda data: b"lumjax-programs 0\n[]",
        lambda data: b"\x80\x04N.",
    ],
)
def test_a_damaged_entry_is_replaced(cache, damage):
    f = PROGRAMS["kernels"][0]
    compiled(f, X)
    (path,) = entries(cache)
    before = path.read_bytes()
    path.write_bytes(damage(before))
    with pytest.warns(CacheWarning, match="unusable") as warned:
        again = compiled(f, X)
    assert len(warned) == 1
    assert not isinstance(again.executable, Recalled)
    assert path.read_bytes() == before
    recalled(f, X)


def test_nonsense_that_was_written_whole_is_replaced(cache):
    f = PROGRAMS["kernels"][0]
    compiled(f, X)
    (path,) = entries(cache)
    for body in (
        b"",
        b"{}",
        (2).to_bytes(8, "little") + b"{}",
        (9).to_bytes(8, "little") + b"[1,2,3]",
    ):
        recall.PROGRAMS.write(path.stem, body)
        with pytest.warns(CacheWarning, match="unusable"):
            compiled(f, X)
        recalled(f, X)


def test_code_that_is_gone_is_made_again(cache):
    f = PROGRAMS["kernels"][0]
    first = compiled(f, X)
    for path in (cache / "objects").rglob("*.o"):
        path.unlink()
    again = compiled(f, X)
    assert not isinstance(again.executable, Recalled)
    same(again(X), first(X))


def test_running_what_was_kept_does_not_load_the_compiler(cache):
    code = "import sys, lumjax, lumjax.numpy as jnp\n"
    code += "print(lumjax.jit(lambda x: jnp.sum(jnp.sin(x)))(jnp.ones(5)))\n"
    code += "print(*[n for n in sys.modules if n.startswith(('lumjax.egraph', 'egglog'))])"
    done = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"LUMJAX_CACHE_DIR": str(cache), "PATH": ""},
        ).stdout.splitlines()
        for _ in range(2)
    ]  # fmt: skip
    assert done[0][0] == done[1][0]
    assert done[0][1]
    assert not done[1][1]

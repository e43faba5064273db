"""What users are told: one case per message. `python tests/debug/messages.py` writes the golden
file, tests/golden/errors.txt, in which a line of code stands for its place.
"""

from __future__ import annotations

import linecache
import re
import warnings
from pathlib import Path

import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, random
from lumjax.config import config
from lumjax.experimental import checkify
from lumjax.ops import narrowing

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "errors.txt"
jit = lumjax.jit
KEPT = []


def branching(params, n):
    total = params["w"].sum() * n
    if total > 3:
        return total
    return n


def counting(x, n):
    return [x * k for k in range(n)]


def in_a_loop(x):
    def body(carry, row):
        return (carry if carry > x else row), None

    return lax.scan(body, x, jnp.ones(3))


def logs(x):
    y = jnp.log(x)
    return jnp.sum(y * 2)


def square_of_root(x):
    y = jnp.sqrt(x)
    return jnp.sum(y * y)


def keeping(x):
    KEPT.append(jnp.sin(x))
    return x


def escaped():
    KEPT.clear()
    jit(keeping)(1.0)
    return KEPT.pop() + 1


def checked_leak():
    KEPT.clear()
    try:
        return jit(keeping)(1.0)
    finally:
        KEPT.clear()


def used_twice():
    key = random.key(0)
    noise = random.normal(key)
    return noise + random.uniform(key)


def after_donation():
    x = jnp.ones(3)
    jit(lambda x: x + 1, donate_argnums=0)(x)
    return x * 2


def shared():
    x = jnp.ones(3)
    view = np.asarray(x)
    return jit(lambda x: x + 1, donate_argnums=0, donate="strict")(x), view


def changed_artefact():
    weights = jnp.arange(3.0)
    artefact = bytearray(lumjax.export(jit(lambda x: x * weights), jnp.ones(3)))
    artefact[-1] ^= 1  # of the weights, the last that an artefact holds
    return lumjax.export.load(artefact)


def other_sizes():
    double = jit(lambda x: x * 2, dynamic={0: lumjax.dim("rows", max=4)})
    return lumjax.export.load(lumjax.export(double, jnp.ones((2, 3))))(jnp.ones((5, 3)))


def twice_donated():
    x = jnp.ones(3)
    return jit(lambda x, y: (x + 1, y + 1), donate_argnums=0)(x, x)


def counter():
    calls = 0

    def counted(x):
        nonlocal calls
        calls += 1
        return x

    return jit(counted)(1.0)


def retraced():
    f = jit(lambda x, n: x * n, static_argnames="n")
    f(jnp.ones(3), 2)
    f(jnp.ones(4), 2)
    f(jnp.ones(4), 3)
    f(np.ones(4, np.int32), 3)
    with lumjax.enable_x64():
        f(jnp.ones(4), 3)
    raise Told(re.sub(r"[\d.]+ ms", "N ms", str(f.explain())))


def rounded():
    narrowing._said.clear()
    try:
        return jnp.asarray(np.full(3, 1 / 3))
    finally:
        narrowing._said.clear()


class Told(Exception):
    """Carries a report that is no error."""


def checkified():
    def f(x):
        checkify.check(x > 0, "x is {}", x)
        return jnp.log(x)

    error, _ = jit(checkify.checkify(f))(-1.0)
    error.throw()


X = jnp.array([1.0, 0.0, -2.0])
LARGE = jnp.array([2**30, 5])
# name: (settings, what is called)
CASES = {
    "bool of a traced value": ({}, lambda: jit(branching)({"w": jnp.ones(3)}, 2.0)),
    "bool under vmap": ({}, lambda: lumjax.vmap(lambda w: branching({"w": w}, 1.0))(X)),
    "bool in the body of a scan": ({}, lambda: jit(in_a_loop)(2.0)),
    "range of a traced value": ({}, lambda: jit(counting)(1.0, 3)),
    "int of a traced value": ({}, lambda: jit(lambda x: int(x))(1.0)),
    "float of a traced value": ({}, lambda: jit(lambda x: float(x))(1.0)),
    "list index": ({}, lambda: jit(lambda k: [1, 2][k])(1)),
    "numpy of a traced value": ({}, lambda: jit(lambda x: np.asarray(x))(1.0)),
    "item of a traced value": ({}, lambda: jit(lambda x: x.item())(1.0)),
    "length of a scalar": ({}, lambda: jit(lambda x: len(x))(1.0)),
    "iteration over a scalar": ({}, lambda: jit(lambda x: list(x))(1.0)),
    "bool mask as an index": ({}, lambda: jit(lambda x: x[x > 0])(X)),
    "slice bound": ({}, lambda: jit(lambda x, n: x[:n])(X, 2)),
    "shape from a traced value": ({}, lambda: jit(lambda n: jnp.zeros(n))(3)),
    "tracer used after its jit": ({}, escaped),
    "leak check": ({"check_tracer_leaks": True}, checked_leak),
    "side effect": ({"debug_side_effects": True}, counter),
    "why it was traced again": ({}, retraced),
    "nan outside of jit": ({"debug_nans": True}, lambda: logs(X)),
    "nan under jit": ({"debug_nans": True}, lambda: jit(logs)(X)),
    "nan in a backward pass": (
        {"debug_nans": True},
        lambda: jit(lumjax.grad(square_of_root))(jnp.array([1.0, 0.0])),
    ),
    "nan in a scan": (
        {"debug_nans": True},
        lambda: jit(lambda x: lax.scan(lambda c, r: (c + jnp.log(r), c), 0.0, x))(X),
    ),
    "nan in an argument": (
        {"debug_nans": True},
        lambda: jit(lambda x: x * 2)(jnp.array([1.0, np.nan])),
    ),
    "infinity": ({"debug_infs": True}, lambda: jit(lambda x: jnp.exp(x * 100))(X)),
    "known index": ({}, lambda: X[5]),
    "known index, take": ({}, lambda: jnp.take(X, 5)),
    "traced index": ({"debug_index": True}, lambda: jit(lambda x, k: x[k])(X, 5)),
    "traced update": ({"debug_index": True}, lambda: jit(lambda x, k: x.at[k].set(1))(X, 5)),
    "dynamic_slice": (
        {"debug_index": True},
        lambda: jit(lambda x, k: lax.dynamic_slice(x, (k,), (2,)))(X, 2),
    ),
    "wrapped sum": ({"debug_overflow": True}, lambda: jit(lambda x: x + x)(LARGE)),
    "lossy cast": ({"debug_overflow": True}, lambda: jit(lambda x: x.astype(np.int8))(LARGE)),
    "division of integers by zero": (
        {"debug_overflow": True},
        lambda: (LARGE - LARGE) // (LARGE - 5),
    ),
    "large int64": ({}, lambda: jit(lambda x: x)(np.int64(2**32))),
    "float64 asked for": ({}, lambda: jnp.zeros(3, np.float64)),
    "float64 input is rounded": ({"warn_narrowing": True}, rounded),
    "no CUDA": ({"backend": "cuda"}, lambda: jit(lambda x: x * 5)(X)),
    "key used twice": ({"debug_key_reuse": True}, used_twice),
    "key used twice under jit": ({"debug_key_reuse": True}, lambda: jit(used_twice)()),
    "use after donation": ({}, after_donation),
    "donated twice": ({}, twice_donated),
    "donation of no use": (
        {},
        lambda: jit(lambda x: x.sum(), donate_argnums=0)(jnp.ones(3)),
    ),
    "strict donation of no use": (
        {},
        lambda: jit(lambda x: x.sum(), donate_argnums=0, donate="strict")(jnp.ones(3)),
    ),
    "strict donation of what is shared": ({}, shared),
    "one size is two": (
        {},
        lambda: jit(lambda x, y: x.sum() * y, dynamic=({0: "n"}, {0: "n"}))(X, jnp.ones(2)),
    ),
    "a size out of range": (
        {},
        lambda: jit(lambda x: x, dynamic={0: lumjax.dim("n", max=2)})(jnp.ones(3)),
    ),
    "a question of a size": (
        {},
        lambda: jit(lambda x: x if x.shape[0] > 3 else -x, dynamic={0: "n"})(X),
    ),
    "a size as a number": (
        {},
        lambda: jit(lambda x: jnp.zeros(int(x.shape[0])), dynamic={0: "n"})(X),
    ),
    "a slice that may not be there": (
        {},
        lambda: jit(lambda x: lax.slice(x, (0,), (4,)), dynamic={0: "n"})(X),
    ),
    "an artefact that is none": ({}, lambda: lumjax.export.load(b"no artefact")),
    "an artefact that was changed": ({}, changed_artefact),
    "an artefact for other sizes": ({}, other_sizes),
    "unhashable static": ({}, lambda: jit(counting, static_argnums=1)(1.0, [3])),
    "reverse through while_loop": (
        {},
        lambda: lumjax.grad(lambda x: lax.while_loop(lambda c: c < 5, lambda c: c * 2, x))(1.0),
    ),
    "too few steps": (
        {},
        lambda: lax.while_loop(lambda c: c < 5, lambda c: c * 2, 1.0, max_steps=2),
    ),
    "check that fails": ({}, checkified),
}


def told(name):
    """The message of a case, with lines of code in the place of their numbers."""
    settings, call = CASES[name]
    with config.scope(**settings), warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            call()
        except Exception as error:
            return with_code(f"{type(error).__name__}: {error}")
    raise AssertionError(f"{name}: nothing was said")


def with_code(text):
    def code(match):
        line = linecache.getline(match[1], int(match[2])).strip()
        return f"<{line}>" if line else match[0]

    return re.sub(r"([^\s(]+\.py):(\d+)", code, text)


def written():
    """The golden file."""
    return "".join(f"== {name}\n{told(name)}\n\n" for name in CASES)


if __name__ == "__main__":
    GOLDEN.write_text(written(), encoding="utf-8")

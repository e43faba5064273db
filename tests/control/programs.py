"""Programs with control flow: each takes a world and gives a function of a vector of three."""

from __future__ import annotations

import numpy as np

POINT = np.array([0.3, -0.7, 1.2])
LANES = np.array([[0.3, -0.7, 1.2], [-0.4, 0.9, 0.1]])
WEIGHTS = np.array([[0.5, -0.2, 0.1], [0.3, 0.8, -0.6], [-0.4, 0.2, 0.7]])
ROWS = np.array([[0.2, 0.1, -0.3], [0.5, -0.5, 0.4]])


def scan_rnn(w):
    def f(x):
        def body(h, row):
            h = w.tanh(w.dot(WEIGHTS, h) + row * x)
            return h, w.sin(h)

        last, ys = w.scan(body, x, w.array(ROWS))
        return last + w.at(ys, 0) * w.at(ys, 1)

    return f


def scan_reverse(w):
    def f(x):
        last, ys = w.scan(
            lambda c, row: (c * w.sin(row), c + row), x, w.stack([x, x * x]), reverse=True
        )
        return last * w.at(ys, 0)

    return f


def scan_weights(w):
    """The differentiated value is a constant of the body; a counter rides along."""

    def f(x):
        def body(carry, row):
            i, c = carry
            return (i + 1, c * w.cos(x) + row * i), None

        (_, last), _ = w.scan(body, (0, w.array(POINT)), w.array(ROWS))
        return last

    return f


def scan_grows(w):
    """The carry's first half becomes differentiated only in the second round."""

    def f(x):
        def body(carry, _):
            a, b = carry
            return (b * 2.0, w.sin(b) + x), a

        (a, b), ys = w.scan(body, (w.array(POINT), w.array(POINT)), None, length=3)
        return a + b * w.at(ys, 2)

    return f


def scan_empty(w):
    return lambda x: w.scan(lambda c, _: (w.sin(c), None), x * 2.0, None, length=0)[0]


def scan_in_scan(w):
    def f(x):
        def outer(c, row):
            inner, _ = w.scan(lambda d, r: (w.sin(d * r) + row, None), c, w.array(ROWS))
            return inner * x, None

        return w.scan(outer, x, w.array(ROWS))[0]

    return f


def scan_of_call(w):
    helper = w.jit(lambda c, x: w.tanh(c * x) + x)
    return lambda x: w.scan(lambda c, row: (helper(c, x) * row, None), x, w.array(ROWS))[0]


def scan_of_checkpoint(w):
    def f(x):
        step = w.checkpoint(lambda c, row: w.sin(w.sin(c) * x) + row)
        return w.scan(lambda c, row: (step(c, row), None), x, w.array(ROWS))[0]

    return f


def scan_unused(w):
    """One result of the body is thrown away."""

    def f(x):
        _, ys = w.scan(lambda c, row: (w.exp(c) * row, (c * x, w.sin(c))), x, w.array(ROWS))
        return w.at(ys[1], 1)

    return f


def cond_data(w):
    return lambda x: w.cond(w.sum(x) > 0.5, lambda a: w.sin(a) * x, lambda a: a * a * a, x)


def cond_other_way(w):
    return lambda x: w.cond(w.sum(x) > 5.0, lambda a: w.sin(a) * x, lambda a: w.exp(a) * a, x)


def cond_constant(w):
    """One branch does not depend on the operand at all, and another depends on one more."""

    def f(x):
        y = w.sin(x)
        return w.cond(w.sum(x) > 0.5, lambda a: w.exp(a) * y, lambda a: w.array(POINT), x)

    return f


def cond_trees(w):
    def f(x):
        yes = lambda d: {"u": d["u"] * x, "v": (d["v"],)}
        no = lambda d: {"u": d["v"] * 2.0, "v": (w.sin(d["u"]),)}
        out = w.cond(w.sum(x) < 0.0, yes, no, {"u": x, "v": x * x})
        return out["u"] + out["v"][0]

    return f


def switch_three(w):
    def f(x):
        index = w.where(w.sum(x) > 0.7, 2, 1)
        return w.switch(index, [lambda a: a, lambda a: w.sin(a) * a, lambda a: w.exp(a * x)], x)

    return f


def cond_in_scan(w):
    def f(x):
        def body(c, row):
            return w.cond(w.sum(c) > 0.3, lambda a: w.sin(a) + row, lambda a: a * x, c), w.sum(c)

        last, ys = w.scan(body, x, w.array(ROWS))
        return last * w.at(ys, 1)

    return f


def scan_in_cond(w):
    def f(x):
        def loop(a):
            return w.scan(lambda c, row: (w.sin(c) * row, None), a, w.array(ROWS))[0]

        return w.cond(w.sum(x) > 0.0, loop, lambda a: a * x, x)

    return f


def fori_static(w):
    return lambda x: w.fori_loop(1, 4, lambda i, c: w.sin(c) * x + i, x)


def map_rows(w):
    return lambda x: w.sum(w.map(lambda row: w.sin(row * x) * row, w.array(ROWS))) * x


def map_blocks(w):
    return lambda x: w.map(lambda a: w.sin(a) * a, x, batch_size=2)


def checkpointed(w):
    return lambda x: w.checkpoint(lambda a: w.sin(w.sin(a) * x))(x) * x


def called(w):
    inner = w.jit(lambda a, b: (w.sin(a) * b, a))

    def f(x):
        y, z = inner(x, w.exp(x))
        return w.jit(lambda a: a * y)(z)

    return f


def custom_forward(w):
    @w.custom_jvp
    def g(a, b):
        return w.sin(a) * b

    @g.defjvp
    def rule(primals, tangents):
        (a, b), (s, t) = primals, tangents
        helper = w.jit(lambda a, b, s, t: (w.sin(a) * b, w.cos(a) * b * s + w.sin(a) * t))
        return helper(a, b, s, t)

    return lambda x: g(x, w.exp(x)) * x


def custom_in_scan(w):
    @w.custom_jvp
    def g(a):
        return w.sin(a)

    g.defjvps(lambda t, out, a: w.cos(a) * t)
    return lambda x: w.scan(lambda c, row: (g(c) * x + row, None), x, w.array(ROWS))[0]


def custom_reverse(w):
    @w.custom_vjp
    def g(a, b):
        return w.sin(a) * b

    g.defvjp(
        lambda a, b: (w.sin(a) * b, (a, b)),
        lambda res, ct: (ct * w.cos(res[0]) * res[1] * 2.0, ct * w.sin(res[0])),
    )
    return lambda x: (
        g(x, w.array(POINT)) * w.scan(lambda c, row: (g(c, row), None), x, w.array(ROWS))[0]
    )


def while_counts(w):
    def f(x):
        def body(state):
            i, c = state
            return i + 1, w.sin(c) * x

        return w.while_loop(lambda state: state[0] < 4, body, (0, x))[1]

    return f


def while_lanes(w):
    """Lanes stop at different times."""

    def f(x):
        out = w.while_loop(lambda c: w.sum(c) < 6.0, lambda c: c * 1.5 + x * x, x)
        return w.sin(out)

    return f


def fori_traced(w):
    def f(x):
        steps = w.where(w.sum(x) > 0.7, 3, 2)
        return w.fori_loop(0, steps, lambda i, c: w.sin(c) * x, x)

    return f


def while_in_scan(w):
    def f(x):
        def body(c, row):
            return w.while_loop(
                lambda d: w.sum(d * d) > 1.0, lambda d: d * 0.5 * w.cos(x), c
            ) + row, None

        return w.scan(body, x, w.array(ROWS))[0]

    return f


BOTH_MODES = [
    scan_rnn, scan_reverse, scan_weights, scan_grows, scan_empty, scan_in_scan, scan_of_call,
    scan_of_checkpoint, scan_unused, cond_data, cond_other_way, cond_constant, cond_trees,
    switch_three, cond_in_scan, scan_in_cond, fori_static, map_rows, map_blocks, checkpointed,
    called, custom_forward, custom_in_scan,
]  # fmt: skip
FORWARD_ONLY = [while_counts, while_lanes, fori_traced, while_in_scan]
REVERSE_ONLY = [custom_reverse]

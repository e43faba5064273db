"""Models of toy size train on `cuda:emulated` as they do on the CPU, and their kernels compile to
machine code that spills nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn
from lumjax.cuda import emulated, nvrtc
from lumjax.cuda.runtime import compiled
from lumjax.testing.claims import check_program
from lumjax.testing.programs import RandomChooser, build

pytestmark = pytest.mark.slow
RNG = np.random.default_rng(0)
REGISTERS = 168  # of a thread, at most
EVALUATED = {"scatter_add"}  # several updates of one place: of the embedding's gradient


def weights(*shape):
    return jnp.asarray(0.3 * RNG.standard_normal(shape), jnp.float32)


def cross_entropy(logits, labels):
    logits = nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(logits, labels[..., None], -1))


def cnn(p, x, labels):
    h = x
    for name in ("c1", "c2"):
        layout = ("NHWC", "HWIO", "NHWC")
        h = lax.conv_general_dilated(h, p[name], (1, 1), "SAME", dimension_numbers=layout)
        window = (1, 2, 2, 1)
        h = lax.reduce_window(nn.relu(h), -jnp.inf, lax.max, window, window, "VALID")
    return cross_entropy(nn.relu(h.reshape(x.shape[0], -1) @ p["w1"]) @ p["w2"], labels)


def norm(x, scale):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale


def attention(x, p, heads):
    batch, time, width = x.shape
    shape = batch, time, heads, width // heads
    q, k, v = ((x @ p[n]).reshape(shape) for n in "qkv")
    scores = jnp.einsum("bthd,bshd->bhts", q, k) * shape[-1] ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, -1e9)
    return jnp.einsum("bhts,bshd->bthd", nn.softmax(scores), v).reshape(x.shape) @ p["o"]


def gpt(p, text):
    x = p["embedding"][text[:, :-1]] + p["position"]
    for layer in p["layers"]:
        x = x + attention(norm(x, layer["s1"]), layer, 2)
        x = x + nn.gelu(norm(x, layer["s2"]) @ layer["f1"]) @ layer["f2"]
    return cross_entropy(norm(x, p["s"]) @ p["embedding"].T, text[:, 1:])


def models():
    d = 16
    images = {"c1": weights(3, 3, 1, 4), "c2": weights(3, 3, 4, 8), "w1": weights(72, 16),
              "w2": weights(16, 10)}  # fmt: skip
    squares = {n: weights(d, d) for n in "qkvo"}
    layer = {**squares, "f1": weights(d, 32), "f2": weights(32, d), "s1": jnp.ones(d),
             "s2": jnp.ones(d)}  # fmt: skip
    words = {"embedding": weights(11, d), "position": weights(7, d), "s": jnp.ones(d),
             "layers": [layer, lumjax.tree.map(lambda w: w * 0.9, layer)]}  # fmt: skip
    labels = jnp.asarray(RNG.integers(0, 10, 4))
    return {
        "cnn": (cnn, images, (weights(4, 12, 12, 1), labels)),
        "gpt": (gpt, words, (jnp.asarray(RNG.integers(0, 11, (2, 8))),)),
    }


class Counting(emulated.Processor):
    """The CPU as a device, which tells what it was asked for."""

    def __init__(self):
        super().__init__()
        self.log = []

    def alloc(self, size):
        self.log.append(("alloc", size))
        return super().alloc(size)

    def copy(self, target, source, size):
        self.log.append(("copy", size))
        super().copy(target, source, size)

    def launch(self, function, blocks, table):
        self.log.append(("launch", function.name))
        super().launch(function, blocks, table)

    def capture(self, work):
        self.log.append(("capture",))
        graph = super().capture(work)
        return lambda: self.replay(graph)

    def replay(self, graph):
        self.log.append(("replay",))
        graph()

    def count(self, kind):
        return sum(entry[0] == kind for entry in self.log)


@pytest.fixture
def counting(monkeypatch):
    made = Counting()
    monkeypatch.setattr(emulated, "current", lambda: made)
    return made


@pytest.mark.parametrize("name", ["cnn", "gpt"])
def test_three_steps_of_training_are_one_graph(name, counting):
    """The whole step is captured once and replayed for each of the steps, which copy to the device
    what is new of the arguments, at first, and then the parameters of the kernels only.
    """
    loss, params, args = models()[name]

    def step(p, *args):
        value, slope = lumjax.value_and_grad(loss)(p, *args)
        return lumjax.tree.map(lambda w, g: w - 0.1 * g, p, slope), value

    there, here = lumjax.jit(step, backend="cuda:emulated", search=0), lumjax.jit(step)
    ours, theirs = params, params
    losses = []
    evaluated = {
        s.eqn.prim.name for s in lumjax.explain(there, params, *args).executable.evaluated()
    }
    assert evaluated <= EVALUATED
    graphs = 1 + len(evaluated)  # one where nothing runs on the host
    leaves = len(lumjax.tree.leaves((params, args)))
    for k in range(3):
        counting.log.clear()
        ours, a = there(ours, *args)
        assert counting.count("replay") == graphs
        assert evaluated or counting.count("copy") == 1 + (0 if k else leaves)
        assert counting.count("capture") == (0 if k else graphs)
        assert k == 0 or counting.count("launch") == 0
        theirs, b = here(theirs, *args)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-5)
        losses.append(float(a))
    assert losses[2] < losses[0]
    for x, y in zip(lumjax.tree.leaves(ours), lumjax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), 1e-4, 1e-5)
    made = lumjax.explain(there, params, *args).executable
    kernels = [k for s in made.native() for k in s.kernels]
    assert [k.rejected for k in kernels if k.rejected] == []
    for kernel in kernels[:: 1 if name == "cnn" else 5]:
        text = compiled(kernel.compiled.kernel).rendered.text
        for arch in ("sm_80", "sm_90a"):
            for usage in nvrtc.cubin(text, arch).usage.values():
                assert usage.spills == 0, text
                assert usage.registers <= REGISTERS


@pytest.mark.parametrize("index", range(40))
def test_random_programs(index):
    with lumjax.config.scope(backend="cuda:emulated", search_evaluations=0):
        check_program(build(RandomChooser(17 * 1_000_003 + index)))

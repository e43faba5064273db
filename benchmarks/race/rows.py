"""The rows of the race."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.race.row import Row, normal

WIDTH = 1024  # of rows that are normalised
ITEM = 4  # bytes of a float32
CUBES = (64, 128, 256, 512, 1024, 2048)
BATCHES = (1, 4, 16, 128, 512)
SIZES = (20, 24)  # logarithms of numbers of elements
TIMES = ((512, 8), (2048, 8), (8192, 4))  # positions and heads
HEAD = 64


def _product(name: str, program: str, m: int, n: int, k: int, narrow: bool = False) -> Row:
    left = (k, m) if program == "product_tn" else (m, k)
    right = (n, k) if program == "product_nt" else (k, n)

    def inputs(rng: np.random.Generator) -> tuple[Any, ...]:
        sides = (normal(rng, *left), normal(rng, *right))
        return tuple(s.astype(ml_dtypes.bfloat16) for s in sides) if narrow else sides

    row = Row(
        name,
        "products",
        program,
        inputs,
        moved=ITEM * (m * k + k * n + m * n),
        flops=2.0 * m * n * k,
    )
    if not narrow:
        return row
    peers = ("lumjax", "jax", "torch", "torch.compile")
    return replace(row, group="bfloat16", moved=row.moved / 2, limit=1e-2, peers=peers)


def products() -> Iterator[Row]:
    """Square ones, and those of a transformer's layers, forward and backward."""
    for n in CUBES:
        yield _product(f"product {n}", "product_nn", n, n, n)
    for m in BATCHES:
        yield _product(f"product {m}x3072x768", "product_nn", m, 3072, 768)
        yield _product(f"product {m}x768x3072 NT", "product_nt", m, 768, 3072)
        yield _product(f"product 768x3072x{m} TN", "product_tn", 768, 3072, m)


def narrow_products() -> Iterator[Row]:
    """A transformer's in bfloat16, for those that have it."""
    for m in BATCHES:
        yield _product(f"bfloat16 {m}x3072x768", "product_nn", m, 3072, 768, True)
        yield _product(f"bfloat16 {m}x768x3072 NT", "product_nt", m, 768, 3072, True)
        yield _product(f"bfloat16 768x3072x{m} TN", "product_tn", 768, 3072, m, True)


def _table(rng: np.random.Generator, size: int, width: int = WIDTH) -> np.ndarray:
    return normal(rng, (1 << size) // width, width)


def _labels(rng: np.random.Generator, n: int, classes: int) -> np.ndarray:
    return rng.integers(0, classes, n).astype(np.int32)


def rows_of_numbers() -> Iterator[Row]:
    """Elementwise programs, norms and losses, forward and backward."""
    for size in SIZES:
        n = ITEM * (1 << size)
        common: dict[str, Any] = {"group": "rows", "fresh": size == SIZES[-1]}

        def several(rng: np.random.Generator, count: int, size: int = size) -> tuple[Any, ...]:
            vectors = (normal(rng, WIDTH) for _ in range(count - 1))
            return (_table(rng, size), *vectors)

        def weighed(rng: np.random.Generator, count: int, size: int = size) -> tuple[Any, ...]:
            return (_table(rng, size), *several(rng, count, size))

        for name, count in (("gelu", 1), ("layer norm", 3), ("rms norm", 2), ("softmax", 1)):
            program = name.replace(" ", "_")
            yield Row(
                f"{name} 2^{size}",
                program=program,
                inputs=lambda rng, f=several, count=count: f(rng, count),
                moved=2 * n,
                **common,
            )
            yield Row(
                f"{name} 2^{size} backward",
                program=f"{program}_loss",
                inputs=lambda rng, f=weighed, count=count: f(rng, count),
                kind="gradient",
                wrt=tuple(range(1, count + 1)),
                moved=3 * n,
                **common,
            )

        def classified(rng: np.random.Generator, size: int = size) -> tuple[Any, ...]:
            return _table(rng, size), _labels(rng, (1 << size) // WIDTH, WIDTH)

        yield Row(f"cross entropy 2^{size}", program="labels", inputs=classified, moved=n, **common)
        yield Row(
            f"cross entropy 2^{size} backward",
            program="labels",
            inputs=classified,
            kind="gradient",
            wrt=(0,),
            moved=2 * n,
            **common,
        )
        yield Row(
            f"Adam 2^{size}",
            program="adam",
            inputs=lambda rng, size=size: tuple(
                np.abs(_table(rng, size)) if k == 3 else _table(rng, size) for k in range(4)
            ),
            moved=7 * n,
            **common,
        )


def attentions() -> Iterator[Row]:
    """Causal attention over (heads, positions, width)."""
    for time, heads in TIMES:
        size = heads * time * HEAD

        def inputs(
            rng: np.random.Generator, count: int, time: int = time, heads: int = heads
        ) -> tuple[Any, ...]:
            return tuple(normal(rng, heads, time, HEAD) for _ in range(count))

        work = heads * time * time * HEAD * 2.0  # two products, half of each masked
        yield Row(
            f"attention {time}",
            "attention",
            "attention",
            lambda rng, f=inputs: f(rng, 3),
            moved=4 * ITEM * size,
            flops=work,
        )
        yield Row(
            f"attention {time} backward",
            "attention",
            "attention_loss",
            lambda rng, f=inputs: f(rng, 4),
            kind="gradient",
            wrt=(1, 2, 3),
            moved=9 * ITEM * size,
            flops=3.5 * work,
        )


def _linear(rng: np.random.Generator) -> tuple[Any, ...]:
    n, width, classes = 512, 384, 50_000
    return normal(rng, n, width), normal(rng, width, classes, scale=0.05), _labels(rng, n, classes)


def _mlp(rng: np.random.Generator) -> tuple[Any, ...]:
    params = {
        "w1": normal(rng, 784, 128, scale=0.05),
        "b1": np.zeros(128, np.float32),
        "w2": normal(rng, 128, 10, scale=0.1),
        "b2": np.zeros(10, np.float32),
    }
    return params, rng.random((50, 784), np.float32), _labels(rng, 50, 10)


def _cnn(rng: np.random.Generator) -> tuple[Any, ...]:
    params = {
        "conv1": normal(rng, 3, 3, 1, 16, scale=0.3),
        "bias1": np.zeros(16, np.float32),
        "conv2": normal(rng, 3, 3, 16, 32, scale=0.1),
        "bias2": np.zeros(32, np.float32),
        "w1": normal(rng, 7 * 7 * 32, 128, scale=0.03),
        "b1": np.zeros(128, np.float32),
        "w2": normal(rng, 128, 10, scale=0.1),
        "b2": np.zeros(10, np.float32),
    }
    return params, rng.random((50, 28, 28, 1), np.float32), _labels(rng, 50, 10)


def _residual(rng: np.random.Generator) -> tuple[Any, ...]:
    channels = 64
    params = {
        f"{name}{k}": value
        for k in "12"
        for name, value in (
            ("conv", normal(rng, 3, 3, channels, channels, scale=0.04)),
            ("scale", np.ones(channels, np.float32)),
            ("shift", np.zeros(channels, np.float32)),
        )
    }
    return params, normal(rng, 16, 28, 28, channels), normal(rng, 16, 28, 28, channels)


def _transformer(
    rng: np.random.Generator, layers: int = 6, width: int = 384, words: int = 4096
) -> dict[str, Any]:
    def norm() -> dict[str, np.ndarray]:
        return {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}

    def layer() -> dict[str, Any]:
        return {
            "norm1": norm(),
            "qkv": normal(rng, width, 3 * width, scale=0.02),
            "out": normal(rng, width, width, scale=0.02),
            "norm2": norm(),
            "up": normal(rng, width, 4 * width, scale=0.02),
            "down": normal(rng, 4 * width, width, scale=0.02),
        }

    return {
        "tokens": normal(rng, words, width, scale=0.02),
        "places": normal(rng, 256, width, scale=0.02),
        "layers": [layer() for _ in range(layers)],
        "norm": norm(),
        "head": normal(rng, width, words, scale=0.02),
    }


def _gpt(rng: np.random.Generator) -> tuple[Any, ...]:
    params = _transformer(rng)
    return params, _labels(rng, 4 * 256, 4096).reshape(4, 256), _labels(rng, 4 * 256, 4096)


def _lstm(rng: np.random.Generator) -> tuple[Any, ...]:
    time, batch, width = 512, 16, 128
    weights = [normal(rng, width, 4 * width, scale=0.05) for _ in range(2)]
    return normal(rng, time, batch, width), *weights, np.zeros(4 * width, np.float32)


def _decode(rng: np.random.Generator) -> tuple[Any, ...]:
    heads, width, past = 6, 384, 512
    params = _transformer(rng)
    shape = (6, heads, past, width // heads)
    caches = (normal(rng, *shape, scale=0.5), normal(rng, *shape, scale=0.5))
    return params, *caches, np.int32(7), np.int32(255)


def models() -> Iterator[Row]:
    """Losses, whole training steps, recurrent networks and decoding."""
    yield Row(
        "linear and cross entropy, 50k",
        "models",
        "linear_labels",
        _linear,
        kind="gradient",
        wrt=(0, 1),
        flops=6.0 * 512 * 384 * 50_000,
    )
    yield Row("MNIST MLP step", "models", "mlp", _mlp, kind="train", limit=1e-3)
    yield Row("MNIST CNN step", "models", "cnn", _cnn, kind="train", limit=1e-3)
    yield Row("residual block step", "models", "residual", _residual, kind="train", limit=1e-3)
    yield Row("GPT step, 6 layers", "models", "gpt", _gpt, kind="train", limit=1e-3)
    yield Row("LSTM 512 steps", "models", "lstm", _lstm)
    yield Row(
        "LSTM 512 steps backward",
        "models",
        "lstm_loss",
        _lstm,
        kind="gradient",
        wrt=(1, 2, 3),
        limit=1e-3,
    )
    yield Row("decode step", "models", "decode", _decode)


def sciences() -> Iterator[Row]:
    """Loops of numerical programs."""
    n = 1024
    yield Row(
        "Jacobi 1024^2, 10 steps",
        "science",
        "jacobi",
        lambda rng: (normal(rng, n, n), normal(rng, n, n)),
        moved=10 * 3 * ITEM * n * n,
    )

    def systems(rng: np.random.Generator) -> tuple[Any, ...]:
        a = normal(rng, 64, 96, 96)
        spd = a @ a.transpose(0, 2, 1) / 96 + np.eye(96, dtype=np.float32)
        return spd.astype(np.float32), normal(rng, 64, 96)

    yield Row("conjugate gradients, 64 systems", "science", "gradients", systems, limit=2e-3)
    yield Row(
        "k-means step",
        "science",
        "means",
        lambda rng: (normal(rng, 65536, 16), normal(rng, 64, 16)),
        limit=2e-3,
    )


def dispatches() -> Iterator[Row]:
    """Calls that do next to nothing."""
    yield Row(
        "jitted call, 3 arrays",
        "dispatch",
        "three",
        lambda rng: tuple(normal(rng, 4) for _ in range(3)),
    )
    yield Row(
        "jitted call, 100 leaves",
        "dispatch",
        "leaves",
        lambda rng: ([normal(rng, 4) for _ in range(100)],),
    )
    for name, program in (("x + x", "twice"), ("x[0]", "first"), (".at[0].set", "changed")):
        yield Row(f"eager {name}", "dispatch", program, lambda rng: (normal(rng, 4),), kind="eager")


ROWS: tuple[Row, ...] = (
    *products(),
    *narrow_products(),
    *rows_of_numbers(),
    *attentions(),
    *models(),
    *sciences(),
    *dispatches(),
)

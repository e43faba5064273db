"""Every jitted program of the examples, with arguments of the shapes that it is called on there."""

from __future__ import annotations

import numpy as np

import lumjax
from benchmarks import steps

RNG = np.random.default_rng(0)


def pixels(*shape):
    return RNG.random(shape, np.float32)


def made(built):
    """A step's function and its arguments."""
    step, args = built
    return step, args


def params_of(built):
    """The parameters that a step's state begins with."""
    return built[1][0][0]


def gpt(m):
    built = steps.gpt(m, 2)
    params, prompt = params_of(built), np.zeros(m.TIME, np.int32)
    yield "step", *made(built)
    yield "evaluate", lumjax.jit(m.loss_fn), (params, *built[1][1:])
    yield "write", lambda p, t, k: m.write(p, t, k, 400), (params, prompt, m.random.key(0))


def names(m):
    for cell in m.CELLS:
        built = steps.names(m, cell)
        params, rows = params_of(built), built[1][1]
        yield f"{cell} step", *made(built)
        yield f"{cell} evaluate", lambda p, r, c=cell: m.loss_fn(p, r, c), (params, rows)
        invented = lambda p, k, c=cell: m.invent(p, k, c, 24)
        yield f"{cell} invent", invented, (params, m.random.key(0))


def classifier(m, *sizes):
    built = steps.classifier(m, *sizes)
    yield "step", *made(built)
    yield "predict", lumjax.jit(m.logits), (params_of(built), pixels(250, 28, 28, 1))


def vit(m):
    yield from classifier(m, 4)


def diffusion(m):
    built, key = steps.diffusion(m), m.random.key(0)
    params, images, labels = params_of(built), *built[1][1:3]
    yield "step", *made(built)
    yield "evaluate", lumjax.jit(m.loss_fn), (params, images, labels, key)
    yield "draw", m.draw, (params, np.arange(40, dtype=np.int32) % 10, key)


def vae(m):
    built = steps.from_pixels(m)
    params = params_of(built)
    yield "step", *made(built)
    yield "evaluate", lumjax.jit(m.loss_fn), (params, pixels(100, 784), m.random.key(0))
    yield "between", m.between, (params, pixels(8, 784), pixels(8, 784))


def pinn(m):
    built = steps.pinn(m)
    yield "step", *made(built)
    yield "solution", m.solution, (params_of(built),)


def rl(m):
    yield "step", *made(steps.rl(m))


def mixed_precision(m):
    for compute in ("float32", "bfloat16", "float16"):
        optimizer, step = m.make_step(100, compute)
        params, n = m.init(m.random.key(0)), m.PARTS * m.BATCH
        state = m.start(params, optimizer)
        yield f"{compute} step", step, (state, pixels(n, 784), np.zeros(n, np.int32))
        predict = lambda p, x, t=compute: m.logits(m.cast(p, t), x.astype(t))
        yield f"{compute} predict", predict, (params, pixels(100, 784))


def contrastive(m):
    built = steps.from_pixels(m)
    yield "step", *made(built)
    yield "encode", lumjax.jit(m.features), (params_of(built), pixels(200, 784))
    yield "view", lumjax.jit(m.view), (pixels(100, 784), m.random.key(0))


def lora(m):
    network, added = m.init(m.random.key(0)), m.adapters(m.random.key(1), 4)
    head = {"head": network["head"]}
    for way, parts in (
        (m.low_rank, head | {"adapters": added}),
        (m.last_layer, head),
        (m.everything, network),
    ):
        optimizer, step = m.make_step(way, 1e-3, 100)
        images, labels = pixels(m.BATCH, 784), np.zeros(m.BATCH, np.int32)
        yield (
            f"{way.__name__} step",
            step,
            ((parts, optimizer.init(parts)), network, images, labels),
        )
    yield "predict", m.predict, (network, pixels(100, 784))
    yield "predict with adapters", m.predict, (network, pixels(100, 784), added)


def gp(m):
    optimizer, step = m.make_step(100)
    params, places = m.init(), 30 * pixels(40, 2)
    yield "step", step, ((params, optimizer.init(params)), places, places[:, 0])
    yield "predict", m.predict, (params, places, places[:, 0], 30 * pixels(60, 2))


def mnist(m):
    for name, (init, logits, _) in m.MODELS.items():
        params, optimizer = init(m.random.key(0)), m.optim.adam(1e-3)
        batch = pixels(50, 28, 28, 1), np.zeros(50, np.int32)
        step = m.make_step(logits, optimizer)
        yield f"{name} step", step, (params, optimizer.init(params), *batch)
        yield f"{name} predict", lumjax.jit(logits), (params, pixels(500, 28, 28, 1))


def regression(m):
    yield "step", m.step, (m.params, m.x, m.y)


def silero_vad(m):
    params = m.load_file(
        m.shared.package_folder("silero_vad") / "data" / "silero_vad_16k.safetensors"
    )
    yield "listen", m.listen, (params, m.silence(), pixels(40, m.FRAME))


def basic_pitch(m):
    path = m.shared.package_folder("basic_pitch") / "saved_models" / "icassp_2022" / "nmp.onnx"
    network, params = m.load(path)
    yield "network", network, (params, pixels(2, m.WINDOW, 1))


def sentences(m):
    params = encoder(48, 6, RNG)
    tokens, lengths = RNG.integers(0, 50, (5, 9)).astype(np.int32), np.array([9, 4, 1, 7, 9])
    yield "embed", m.embed, (params, tokens, np.arange(9) < lengths[:, None])


def vision_language(m):
    optimizer, step = m.make_step(100)
    params, n = m.init(m.random.key(0)), m.BATCH
    images, vectors = pixels(n, 28, 28, 1), pixels(n, 384)
    state = params, optimizer.init(params)
    yield "step", step, (state, images, vectors, np.eye(n, dtype=np.float32))
    yield "compare", m.compare, (params, images, vectors)


def encoder(width, layers, rng):
    """The weights of an encoder of sentences by their names, none of them zero."""

    def some(*shape):
        return (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)

    def normal(name):
        return {f"{name}.weight": 1 + some(width), f"{name}.bias": some(width)}

    def dense(name, outputs, inputs):
        return {f"{name}.weight": some(outputs, inputs), f"{name}.bias": some(outputs)}

    p = {f"embeddings.{n}_embeddings.weight": some(50, width) for n in ("word", "position")}
    p |= {"embeddings.token_type_embeddings.weight": some(2, width)}
    p |= normal("embeddings.LayerNorm")
    for k in range(layers):
        name = f"encoder.layer.{k}"
        for kind in ("self.query", "self.key", "self.value", "output.dense"):
            p |= dense(f"{name}.attention.{kind}", width, width)
        p |= normal(f"{name}.attention.output.LayerNorm") | normal(f"{name}.output.LayerNorm")
        p |= dense(f"{name}.intermediate.dense", 3 * width, width)
        p |= dense(f"{name}.output.dense", width, 3 * width)
    return p


# Of each example: its programs, and what to install for them.
TRAIN = {
    "regression": (regression, None),
    "mnist": (mnist, None),
    "cnn": (classifier, None),
    "vit": (vit, None),
    "gpt": (gpt, None),
    "names": (names, None),
    "diffusion": (diffusion, None),
    "vae": (vae, None),
    "pinn": (pinn, None),
    "rl": (rl, None),
    "mixed_precision": (mixed_precision, None),
    "contrastive": (contrastive, None),
    "lora": (lora, None),
    "gp": (gp, None),
}
INFER = {
    "silero_vad": (silero_vad, "silero_vad"),
    "basic_pitch": (basic_pitch, "basic_pitch"),
    "sentences": (sentences, None),
    "vision_language": (vision_language, None),
}

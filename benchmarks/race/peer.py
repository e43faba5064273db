"""A peer in a process of its own: builds programs, runs them, says what they give and cost."""

from __future__ import annotations

import gc
import importlib.util
import os
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.memory import measurable, peak
from benchmarks.race.row import Row
from benchmarks.race.rows import ROWS

HERE = Path(__file__).resolve().parent
PEERS = ("lumjax", "jax", "numpy", "torch", "torch.compile", "tinygrad")
JUDGE = "float64"  # JAX in double precision
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
RATE = 1e-3  # Adam's, of training steps

Run = Callable[[], Any]


class MissingError(Exception):
    """The peer has no such program; the message says why, if there is more to say."""


def installed(peer: str) -> bool:
    """Whether a peer can be imported here."""
    module = {"torch.compile": "torch", JUDGE: "jax"}.get(peer, peer)
    return importlib.util.find_spec(module) is not None


def settings(peer: str, threads: int, scratch: str) -> dict[str, str]:
    """Environment variables for a peer on so many threads, with empty caches under `scratch`."""
    n = str(threads)
    found = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LUMJAX_NUM_THREADS"), n
    )
    return {
        **found,
        "JAX_ENABLE_X64": str(int(peer == JUDGE)),
        "LUMJAX_CACHE_DIR": scratch,
        "TORCHINDUCTOR_CACHE_DIR": scratch,
        "CACHELEVEL": "0",
    }


def serve(peer: str, threads: int, connection: Connection, kind: Any = None) -> None:
    """Answer requests (name, arguments) until None comes, by what a Stand, or another `kind`, has
    under the name. An answer is (value, error).
    """
    if hasattr(os, "sched_setaffinity"):  # Linux has it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    stand = (kind or Stand)(peer, threads)
    while (request := connection.recv()) is not None:
        name, *arguments = request
        try:
            connection.send((getattr(stand, name)(*arguments), None))
        except MissingError as why:
            connection.send((None, str(why)))
        except Exception as error:
            line = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
            connection.send((None, f"failed: {line[:200]}"))


class Stand:
    """One peer and the program that it runs at the moment."""

    def __init__(self, peer: str, threads: int) -> None:
        self.peer = peer
        maker = {"numpy": _numpy, "tinygrad": _tinygrad, "torch": _torch, "torch.compile": _torch}
        self.make = maker.get(peer, _jax)(peer, threads)
        self.run: Run = lambda: None

    def build(self, number: int) -> tuple[float, list[list[np.ndarray]], int]:
        """Seconds of the first call, results of the first calls as flat lists of arrays, and the
        most bytes held by a later one (0 where that is not known).
        """
        row = ROWS[number]
        if row.peers and self.peer not in (*row.peers, JUDGE):
            raise MissingError("")
        self.run, numbers = self.make(row)
        started = time.perf_counter()
        first = self.run()
        seconds = time.perf_counter() - started
        results = [numbers(first)]
        del first
        results += [numbers(self.run()) for _ in range(row.steps - 1)]
        self.run()
        held = peak(self.run)[0] if measurable() else 0
        return seconds, results, held

    def sample(self, repeat: int, keep: bool, clock: str) -> float:
        """Seconds of a call, of so many in a row; `keep` holds all results until the end, so that
        each takes fresh memory. The clock is "wall" or "cpu" (all threads of the process).
        """
        run, now = self.run, CLOCKS[clock]
        kept: list[Any] = []
        started = now()
        if keep:
            for _ in range(repeat):
                kept.append(run())  # noqa: PERF401
        else:
            for _ in range(repeat):
                run()
        return (now() - started) / repeat

    def drop(self) -> None:
        """Forget the program and its arrays."""
        self.run = lambda: None
        gc.collect()


# ---- lumjax and JAX, from one source


def _jax(peer: str, threads: int) -> Any:
    from benchmarks.peers import jax_modules, load

    if peer == "lumjax":
        import lumjax as framework

        sources, wait = load(HERE / "sources.py", {}), None
    else:
        import jax as framework

        modules = jax_modules()
        for name in ("transformer", "programs"):
            modules[f"benchmarks.{name}"] = load(HERE.parent / f"{name}.py", modules)
        sources, wait = load(HERE / "sources.py", modules), framework.block_until_ready
    if peer == "lumjax":
        from lumjax import optim
    else:
        import optax as optim
    tree, array = framework.tree, framework.numpy.asarray

    def numbers(result: Any) -> list[np.ndarray]:
        return [np.asarray(x, np.float64) for x in tree.leaves(result)]

    def make(row: Row) -> tuple[Run, Any]:
        f = getattr(sources, row.program)
        arguments = tree.map(lambda x: _wide(array, x, peer), row.arguments())
        if row.kind == "train":
            return _trained(framework, optim, f, arguments, wait), numbers
        if row.kind == "gradient":
            f = framework.value_and_grad(f, row.wrt)
        if row.kind != "eager":
            f = framework.jit(f)
        run = (lambda: f(*arguments)) if wait is None else (lambda: wait(f(*arguments)))
        return run, numbers

    return make


def _wide(array: Any, x: Any, peer: str) -> Any:
    x = np.asarray(x)
    floats = (np.float32, ml_dtypes.bfloat16)
    return array(x.astype(np.float64) if peer == JUDGE and x.dtype in floats else x)


def _trained(framework: Any, optim: Any, f: Any, arguments: Any, wait: Any) -> Run:
    params, *batch = arguments
    rule = optim.adam(RATE)

    @framework.jit
    def step(params: Any, state: Any, *batch: Any) -> Any:
        loss, grads = framework.value_and_grad(f)(params, *batch)
        updates, state = rule.update(grads, state, params)
        return optim.apply_updates(params, updates), state, loss

    kept = [params, rule.init(params)]

    def run() -> Any:
        kept[0], kept[1], loss = step(*kept, *batch)
        if wait is not None:
            wait(kept)
        return loss

    return run


# ---- the others


def _numpy(peer: str, threads: int) -> Any:
    from benchmarks.race import on_numpy

    def numbers(result: Any) -> list[np.ndarray]:
        parts = result if isinstance(result, tuple) else [result]
        return [np.asarray(x, np.float64) for x in parts]

    def make(row: Row) -> tuple[Run, Any]:
        f = _program(on_numpy, row)
        arguments = row.arguments()
        return lambda: f(*arguments), numbers

    return make


def _program(module: Any, row: Row) -> Any:
    f = getattr(module, row.program, None)
    if f is None or (row.kind in ("gradient", "train") and not hasattr(module, "parameters")):
        raise MissingError("")
    return f


def _torch(peer: str, threads: int) -> Any:
    import torch
    from torch.utils import _pytree as tree

    from benchmarks.race import on_torch

    torch.set_num_threads(threads)

    def tensor(x: Any) -> Any:
        x = np.array(x)
        if x.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(x.astype(np.float32)).bfloat16()
        t = torch.from_numpy(x)
        return t.long() if t.dtype == torch.int32 else t

    def numbers(result: Any) -> list[np.ndarray]:
        return [x.detach().double().numpy() for x in tree.tree_leaves(result)]

    def make(row: Row) -> tuple[Run, Any]:
        f = _program(on_torch, row)
        if peer == "torch.compile":
            if row.kind == "eager":
                raise MissingError("")
            torch.compiler.reset()
            f = torch.compile(f, dynamic=False)
        arguments = tree.tree_map(tensor, row.arguments())
        if row.kind == "train":
            return _torch_trained(torch, tree, on_torch.parameters, row, f, arguments), numbers
        if row.kind != "gradient":
            return torch.no_grad()(lambda: f(*arguments)), numbers
        wrt = [arguments[k].requires_grad_() for k in row.wrt]

        def run() -> Any:
            value = f(*arguments)
            return value, torch.autograd.grad(value, wrt)

        return run, numbers

    return make


def _torch_trained(torch: Any, tree: Any, parameters: Any, row: Row, f: Any, arguments: Any) -> Run:
    params, *batch = arguments
    params = parameters(row.program, params)
    params = tree.tree_map(lambda p: p.detach().clone().requires_grad_(), params)
    rule = torch.optim.Adam(tree.tree_leaves(params), lr=RATE, fused=True)

    def run() -> Any:
        rule.zero_grad(set_to_none=True)
        loss = f(params, *batch)
        loss.backward()
        rule.step()
        return loss.detach()

    return run


def _tinygrad(peer: str, threads: int) -> Any:
    from tinygrad import Tensor, TinyJit

    from benchmarks.race import on_tinygrad

    def listed(x: Any) -> list[Any]:
        return [t for part in x for t in listed(part)] if isinstance(x, (list, tuple)) else [x]

    def numbers(result: Any) -> list[np.ndarray]:
        return [x.numpy().astype(np.float64) for x in listed(result)]

    def make(row: Row) -> tuple[Run, Any]:
        f = _program(on_tinygrad, row)
        arguments = [
            [on_tinygrad.array(y) for y in x] if isinstance(x, list) else on_tinygrad.array(x)
            for x in row.arguments()
        ]
        if row.kind == "eager":
            return lambda: f(*arguments), numbers

        @TinyJit
        def jitted(*args: Any) -> Any:
            found = listed(f(*args))
            Tensor.realize(*found)
            return found

        return lambda: jitted(*arguments), numbers

    return make

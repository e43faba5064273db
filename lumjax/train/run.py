"""A training run: its steps with a bar, a file of metrics, checkpoints, a trace of some steps."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lumjax import checkpoints
from lumjax.errors import ArgumentValueError, CheckpointError
from lumjax.profiler import StepTraceAnnotation
from lumjax.traces import start_trace, stop_trace
from lumjax.train.stop import EarlyStop


class Run:
    """The steps of a training run: `for number in run`, whose body sets `run.state`, any pytree of
    arrays, and calls `run.log(metric=value, ...)` once.

    In the folder `out` it writes `NAME.jsonl`, a line of metrics for each step, and
    `NAME.safetensors`, the checkpoint: the state, every `save_every` steps and at the end. With
    `resume` the run goes on from there, with the metrics up to there; where batches and random
    numbers depend on nothing but the number of the step and the state, a run that was killed and
    resumed ends with the same bits as one that was not. `stop` ends the loop early, see EarlyStop;
    `trace` is a range of steps whose spans are written as Perfetto JSON into `out`/NAME.trace.

    Raises ArgumentValueError for steps below 0, for `save_every` below 1, and where a step ends
    without a call of `log`; errors of `checkpoint.load` where the checkpoint does not fit `state`.
    """

    def __init__(
        self,
        name: str,
        state: Any,
        *,
        steps: int,
        out: str | os.PathLike[str] = "out",
        save_every: int = 100,
        resume: bool = False,
        progress: bool = True,
        stop: EarlyStop | None = None,
        trace: range = range(0),
    ) -> None:
        if steps < 0 or save_every < 1:
            raise _misuse(
                "steps of at least 0 and save_every of at least 1",
                f"steps {steps} and save_every {save_every}", "correct them",
            )  # fmt: skip
        self.name, self.state, self.steps, self.out = name, state, steps, Path(out)
        self.save_every, self.progress, self.stop, self.trace = save_every, progress, stop, trace
        self.first = 0
        self.lines: list[dict[str, float]] = []
        self._logged: dict[str, float] | None = None
        self.out.mkdir(parents=True, exist_ok=True)
        if resume and self.path("safetensors").exists():
            self._load()
        self.stopped = any(map(self._stops, self.lines))
        self.path("jsonl").write_text("".join(map(_text, self.lines)))

    def path(self, suffix: str) -> Path:
        """A file of this run."""
        return self.out / f"{self.name}.{suffix}"

    def log(self, **metrics: Any) -> None:
        """The metrics of the current step: scalars, which go to the bar and the metrics' file."""
        self._logged = {k: float(v) for k, v in metrics.items()}

    def __iter__(self) -> Iterator[int]:
        """The numbers of the steps that are left."""
        with ExitStack() as stack:
            bar = self._bar(stack)
            log = stack.enter_context(self.path("jsonl").open("a"))
            for number in range(self.first, self.steps):
                if self.stopped:
                    return
                self._logged = None
                with ExitStack() as step:
                    self._traced(number, step)
                    yield number
                line = self._finished(number)
                log.write(_text(line))
                bar(line)
                done = number + 1
                if done % self.save_every == 0 or done == self.steps or self.stopped:
                    log.flush()  # the lines of a checkpoint's steps are there before it is
                    self._save(done)

    def column(self, metric: str) -> np.ndarray[Any, Any]:
        """A metric by step; NaN where a step has none."""
        return np.array([line.get(metric, np.nan) for line in self.lines])

    def tail(self, metric: str, steps: int = 50) -> float:
        """The mean of a metric over the last steps that have it; NaN if none has."""
        values = self.column(metric)
        found = values[np.isfinite(values)][-steps:]
        return float(found.mean()) if len(found) else float("nan")

    # ---- a step

    def _traced(self, number: int, step: ExitStack) -> None:
        if number in self.trace and number - 1 not in self.trace:
            start_trace(self.path("trace"))
        if number in self.trace and number + 1 not in self.trace:
            step.callback(stop_trace)
        step.enter_context(StepTraceAnnotation(self.name, step_num=number))

    def _finished(self, number: int) -> dict[str, float]:
        if self._logged is None:
            raise _misuse(
                "a call of run.log in each step", f"none in step {number}",
                "log the step's loss, or nothing: run.log()",
            )  # fmt: skip
        line = {"step": number, **self._logged}
        self.lines.append(line)
        self.stopped = self._stops(line)
        return line

    def _stops(self, line: dict[str, float]) -> bool:
        return (
            self.stop is not None
            and self.stop.metric in line
            and self.stop.update(line[self.stop.metric])
        )

    def _bar(self, stack: ExitStack) -> Any:
        """What shows a line."""
        if not self.progress:
            return lambda line: None
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        shown = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))
        stack.enter_context(shown)
        task = shown.add_task(f"{self.name}: compiling", total=self.steps, completed=self.first)

        def show(line: dict[str, float]) -> None:
            text = "  ".join(f"{k} {v:.4g}" for k, v in line.items() if k != "step")
            shown.update(task, advance=1, description=f"{self.name}: {text}")

        return show

    # ---- checkpoints

    def _save(self, done: int) -> None:
        checkpoints.save(self.path("safetensors"), self.state, metadata={"steps": str(done)})

    def _load(self) -> None:
        path = self.path("safetensors")
        self.state = checkpoints.load(path, like=self.state)
        self.first = int(checkpoints.metadata(path).get("steps", "-1"))
        lines = self.path("jsonl").read_text().splitlines()[: self.first]
        if len(lines) != self.first:
            raise CheckpointError(
                operation="train.Run", required="a checkpoint with the metrics of its steps",
                got=f"{path} after {self.first} steps, {self.path('jsonl')} with {len(lines)}",
                fix="begin without resume, or put back both files",
            )  # fmt: skip
        self.lines = [json.loads(line) for line in lines]


def _text(line: dict[str, float]) -> str:
    return json.dumps(line) + "\n"


def _misuse(required: str, got: str, fix: str) -> ArgumentValueError:
    return ArgumentValueError(operation="train.Run", required=required, got=got, fix=fix)

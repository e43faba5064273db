"""The ASGI application.

    POST /run        arguments in, results out: JSON {"args": [...], "kwargs": {...}}, or
                     safetensors (application/x-safetensors) by path, such as [0][0] for the first
                     positional argument. The answer has the form of the request.
    GET  /signature  what /run takes and gives
    GET  /health     200 while requests are taken
    GET  /metrics    for Prometheus

An answer's headers say what it took: `x-lumjax-seconds` of the run that it was part of,
`x-lumjax-share`, the request's part of them, and `x-lumjax-together`, how many requests ran as one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lumjax import dtype as dt
from lumjax.errors import ArgumentValueError
from lumjax.exporting.artefact import Exported
from lumjax.record import record
from lumjax.serve.batching import Batcher, Done, FullError
from lumjax.serve.metrics import Metrics
from lumjax.serve.values import Form, RequestError
from lumjax.trace.aval import ShapedArray
from lumjax.trace.dim import Dim, Expr, bounds

TENSORS = "application/x-safetensors"


@record
class Limits:
    """What a server takes: bytes of a request, requests that wait, seconds until one is given up;
    and the seconds that a request waits for others to run with.

    >>> Limits(timeout=5).waiting
    1024
    """

    body: int = 64 << 20
    waiting: int = 1024
    timeout: float = 30.0
    gather: float = 0.002


DEFAULT = Limits()


def application(
    programs: Exported | Sequence[Exported],
    *,
    axis: int | None = None,
    limits: Limits = DEFAULT,
) -> Starlette:
    """The ASGI application that serves a program.

    With `axis`, every argument and every result has its rows along that axis; requests of fewer
    rows than the program has run together, padded with zeros unless that size is open (and has an
    end). There may be several programs then, equal but for that size. Raises ArgumentValueError for
    programs that do not fit.

    >>> import lumjax, lumjax.numpy as jnp
    >>> program = lumjax.export.export(lumjax.jit(jnp.sin))(jnp.ones((8, 3)))
    >>> [route.path for route in application(program, axis=0).routes]
    ['/run', '/signature', '/health', '/metrics']
    """
    listed = [programs] if isinstance(programs, Exported) else list(programs)
    return _Service(_sorted(listed, axis), axis, limits).application()


def _sorted(programs: Sequence[Exported], axis: int | None) -> list[tuple[int, Exported]]:
    """The programs by rows."""
    if not programs or (axis is None and len(programs) > 1):
        raise _misfit("one program, or several with an axis", f"{len(programs)} programs")
    for p in programs:
        for aval in (*p.in_avals, *p.out_avals):
            if not (
                dt.is_bool(aval.dtype) or dt.is_integer(aval.dtype) or dt.is_floating(aval.dtype)
            ):
                raise _misfit("arguments and results of real numbers", str(aval))
    if axis is None:
        if programs[0].is_open:
            raise _misfit("an axis, where sizes of arguments are open", repr(programs[0]))
        return [(1, programs[0])]
    rows = sorted([(_rows(p, axis), p) for p in programs], key=lambda pair: pair[0])
    forms = {(p.in_tree, p.out_tree, *_rest(p, axis)) for _, p in rows}
    if len(forms) > 1:
        raise _misfit(
            f"programs that are equal but for axis {axis}", ", ".join(map(repr, programs))
        )
    return rows


def _rows(program: Exported, axis: int) -> int:
    avals = (*program.in_avals, *program.out_avals)
    if axis < 0 or any(isinstance(n, Expr) for a in _rest(program, axis) for n in (*a[0], *a[1])):
        raise _misfit(f"sizes that are open along axis {axis} alone", repr(program))
    sizes = {_most(a.shape[axis]) if a.ndim > axis else -1 for a in avals}
    if len(sizes) != 1 or min(sizes) < 1 or axis < 0 or not program.in_avals:
        raise _misfit(f"arguments and results of as many rows along axis {axis}", repr(program))
    return sizes.pop()


def _most(rows: Dim) -> int:
    """The most rows that a program takes; -1 where an open size has no end."""
    most = bounds(rows)[1]
    return -1 if most is None else most


def _rest(program: Exported, axis: int) -> list[Any]:
    """The types, without the size of an axis."""
    return [
        (a.shape[:axis], a.shape[axis + 1 :], a.dtype)
        for a in (*program.in_avals, *program.out_avals)
    ]


def _misfit(required: str, got: str) -> ArgumentValueError:
    return ArgumentValueError(
        operation="serve", required=required, got=got, fix="export the function in this form"
    )


def _closed(avals: Sequence[ShapedArray]) -> tuple[ShapedArray, ...]:
    """The types with as many rows as there may be."""
    return tuple([a.with_shape(tuple(map(_most, a.shape))) for a in avals])


class _Service:
    def __init__(
        self, programs: list[tuple[int, Exported]], axis: int | None, limits: Limits
    ) -> None:
        self.programs, self.axis, self.limits = programs, axis, limits
        self.metrics = Metrics()
        largest = programs[-1][1]
        self.takes = Form(largest.in_tree, _closed(largest.in_avals), axis)
        self.gives = Form(largest.out_tree, _closed(largest.out_avals), axis)
        self.batcher: Batcher | None = None

    def application(self) -> Starlette:
        routes = [
            Route("/run", self.run, methods=["POST"]),
            Route("/signature", self.signature),
            Route("/health", self.health),
            Route("/metrics", self.exposition),
        ]
        return Starlette(routes=routes, lifespan=self.lifespan)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        limits = self.limits
        self.batcher = Batcher(self.programs, self.axis, limits.gather, limits.waiting)
        self.batcher.start()
        yield
        await self.batcher.close()
        self.batcher = None

    async def run(self, request: Request) -> Response:
        started = time.perf_counter()
        response = await self._answered(request)
        self.metrics.count(response.status_code, time.perf_counter() - started)
        return response

    async def _answered(self, request: Request) -> Response:
        binary = request.headers.get("content-type", "").split(";")[0].strip() == TENSORS
        try:
            body = await self._body(request)
            leaves = self.takes.from_tensors(body) if binary else self._arguments(body)
            self._same_rows(leaves)
            assert self.batcher is not None, "the application runs"
            async with asyncio.timeout(self.limits.timeout):
                done = await self.batcher.submit(leaves)
        except RequestError as error:
            return _failure(400, str(error))
        except _LargeError:
            return _failure(413, f"more than {self.limits.body} bytes")
        except FullError as error:
            return _failure(503, str(error), {"retry-after": "1"})
        except TimeoutError:
            return _failure(504, f"no answer within {self.limits.timeout:g} seconds")
        except Exception as error:
            return _failure(500, f"{type(error).__name__}: {error}")
        return self._response(done, binary)

    def _arguments(self, body: bytes) -> list[Any]:
        """The leaves of {"args": [...], "kwargs": {...}}, of which either may be missing if it is
        empty.
        """
        try:
            given = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"this is no JSON: {error}") from None
        if not isinstance(given, dict) or not set(given) <= {"args", "kwargs"}:
            raise RequestError('an object {"args": [...], "kwargs": {...}} is required')
        return self.takes.from_value([given.get("args", []), given.get("kwargs", {})])

    def _same_rows(self, leaves: Sequence[Any]) -> None:
        if self.axis is not None and len({x.shape[self.axis] for x in leaves}) > 1:
            raise RequestError(f"arguments of different numbers of rows along axis {self.axis}")

    async def _body(self, request: Request) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > self.limits.body:
                raise _LargeError
            parts.append(part)
        return b"".join(parts)

    def _response(self, done: Done, binary: bool) -> Response:
        headers = {
            "x-lumjax-seconds": f"{done.seconds:.6f}",
            "x-lumjax-share": f"{done.share:.6f}",
            "x-lumjax-together": str(done.together),
        }
        if binary:
            return Response(self.gives.to_tensors(done.leaves), 200, headers, TENSORS)
        return Response(self.gives.to_json(done.leaves), 200, headers, "application/json")

    async def signature(self, _: Request) -> Response:
        largest = self.programs[-1][1]
        return JSONResponse({
            "name": largest.fun_name,
            "arguments": _types(self.takes),
            "results": _types(self.gives),
            "axis": self.axis,
            "rows": None if self.axis is None else [n for n, _ in self.programs],
        })  # fmt: skip

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def exposition(self, _: Request) -> Response:
        b = self.batcher
        assert b is not None, "the application runs"
        more = {
            "lumjax_runs_total": ("counter", "Runs of a program.", float(b.runs)),
            "lumjax_run_seconds_total": ("counter", "Time that runs took.", b.seconds),
            "lumjax_waiting": ("gauge", "Requests that wait.", float(len(b.queue))),
        }
        return PlainTextResponse(self.metrics.text(more), media_type="text/plain; version=0.0.4")


class _LargeError(Exception):
    """A request of more bytes than are taken."""


def _types(form: Form) -> dict[str, Any]:
    def one(aval: ShapedArray) -> dict[str, Any]:
        shape = [
            None if k == form.axis else int(n)  # type: ignore[arg-type]
            for k, n in enumerate(aval.shape)
        ]
        return {"shape": shape, "dtype": aval.dtype.name}

    return {path: one(aval) for path, aval in zip(form.paths, form.avals, strict=True)}


def _failure(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": why}, status, headers)

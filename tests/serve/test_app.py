"""The application: answers are those of the program, however requests run together."""

from __future__ import annotations

import asyncio
import json
import re
import time

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import files, nn
from lumjax.errors import ArgumentValueError

pytest.importorskip("starlette", reason="the extra `serve` is not installed")
from lumjax.serve import Limits, application
from tests.serve.asgi import running

WEIGHTS = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


@lumjax.jit
def model(x, *, scale):
    return {"p": nn.softmax(scale[:, None] * (x @ WEIGHTS), -1), "rows": jnp.sum(x, -1)}


def program(rows):
    x, scale = jnp.zeros((rows, 4)), jnp.zeros(rows)
    return lumjax.export.load(lumjax.export(model, x, scale=scale))


@pytest.fixture(scope="module")
def programs():
    return [program(n) for n in (8, 1)]


def request(rows, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, 4), np.float32), rng.random(rows, np.float32)


def body(x, scale):
    return json.dumps({"args": [x.tolist()], "kwargs": {"scale": scale.tolist()}}).encode()


def expected(x, scale):
    return {k: np.asarray(v) for k, v in model(x, scale=scale).items()}


def serving(programs, use, **options):
    async def main():
        async with running(application(programs, **options)) as send:
            return await use(send)

    return asyncio.run(main())


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_json(programs, rows):
    x, scale = request(rows)
    found = serving(programs, lambda send: send("POST", "/run", body(x, scale)), axis=0)
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    for name, value in expected(x, scale).items():
        np.testing.assert_allclose(found.json[name], value, rtol=1e-5, atol=1e-6)
    assert float(found.headers["x-lumjax-seconds"]) >= float(found.headers["x-lumjax-share"]) >= 0


def test_tensors(programs):
    x, scale = request(2)
    sent = files.packed({"[0][0]": x, "[1]['scale']": scale}, {})
    kind = "application/x-safetensors"
    found = serving(programs, lambda send: send("POST", "/run", sent, kind), axis=0)
    assert (found.status, found.headers["content-type"]) == (200, kind)
    tensors, _ = files.unpacked(found.body)
    for name, value in expected(x, scale).items():
        np.testing.assert_allclose(tensors[f"['{name}']"], value, rtol=1e-5, atol=1e-6)


def test_requests_run_together_and_are_not_mixed_up(programs):
    requests = [request(1 + k % 3, k) for k in range(40)]

    async def use(send):
        answers = await asyncio.gather(*[send("POST", "/run", body(*r)) for r in requests])
        return answers, (await send("GET", "/metrics")).body.decode()

    answers, text = serving(programs, use, axis=0, limits=Limits(gather=0.05))
    for r, answer in zip(requests, answers, strict=True):
        for name, value in expected(*r).items():
            np.testing.assert_allclose(answer.json[name], value, rtol=1e-5, atol=1e-6)
    runs = int(re.search(r"^lumjax_runs_total (\d+)$", text, re.MULTILINE)[1])
    assert sum(len(r[0]) for r in requests) / 8 <= runs < 20
    assert 'lumjax_requests_total{status="200"} 40' in text
    assert "lumjax_request_seconds_count 40" in text
    shares = sum(float(a.headers["x-lumjax-share"]) for a in answers)
    total = float(re.search(r"^lumjax_run_seconds_total (\S+)$", text, re.MULTILINE)[1])
    assert shares == pytest.approx(total, rel=0.05, abs=1e-4)


@pytest.fixture(scope="module")
def open_program():
    rows = {0: lumjax.dim("rows", max=8)}
    opened = lumjax.jit(model.fun, dynamic={"x": rows, "scale": rows})
    return lumjax.export.load(lumjax.export(opened, jnp.zeros((3, 4)), scale=jnp.zeros(3)))


def test_programs_of_open_rows_run_as_many_as_there_are(open_program):
    requests = [request(1 + k % 3, k) for k in range(40)]

    async def use(send):
        signature = (await send("GET", "/signature")).json
        many = await send("POST", "/run", body(*request(9)))
        answers = await asyncio.gather(*[send("POST", "/run", body(*r)) for r in requests])
        return signature, many, answers

    signature, many, answers = serving(open_program, use, axis=0, limits=Limits(gather=0.05))
    assert signature["arguments"]["[0][0]"]["shape"] == [None, 4]
    assert (many.status, "1 to 8 rows" in many.json["error"]) == (400, True)
    for r, answer in zip(requests, answers, strict=True):
        for name, value in expected(*r).items():
            np.testing.assert_allclose(answer.json[name], value, rtol=1e-5, atol=1e-6)
    assert len(open_program._run.explain()) == 1


def test_open_sizes_that_can_not_be_served(open_program):
    endless = lumjax.jit(lambda x: x, dynamic={0: "n"})
    other = lumjax.jit(lambda x: x, dynamic={1: lumjax.dim("n", max=9)})
    for bad, axis, text in (
        (open_program, None, "an axis"),
        (lumjax.export.export(endless)(jnp.ones((2, 2))), 0, "as many rows"),
        (lumjax.export.export(other)(jnp.ones((2, 2))), 0, "open along axis 0 alone"),
    ):
        with pytest.raises(ArgumentValueError, match=text):
            application(bad, axis=axis)


def test_without_an_axis_shapes_are_as_they_are():
    fixed = lumjax.export.load(
        lumjax.export(lumjax.jit(lambda x, y: (x + y, None)), 1.0, jnp.ones(2))
    )

    async def use(send):
        good = await send("POST", "/run", b'{"args": [2.5, [1, 2]]}')
        bad = await send("POST", "/run", b'{"args": [2.5, [1]]}')
        return good, bad

    good, bad = serving(fixed, use)
    assert good.json == [[3.5, 4.5], None]
    assert (bad.status, bad.json["error"]) == (400, "[0][1] requires the shape (2,); got (1,)")


def test_what_is_said_of_it(programs):
    async def use(send):
        return await send("GET", "/signature"), await send("GET", "/health")

    signature, health = serving(programs, use, axis=0)
    assert health.status == 200
    assert signature.json == {
        "name": "model", "axis": 0, "rows": [1, 8],
        "arguments": {"[0][0]": {"shape": [None, 4], "dtype": "float32"},
                      "[1]['scale']": {"shape": [None], "dtype": "float32"}},
        "results": {"['p']": {"shape": [None, 3], "dtype": "float32"},
                    "['rows']": {"shape": [None], "dtype": "float32"}},
    }  # fmt: skip


BAD = [
    (b"{", 400, "no JSON"),
    (b"[" * 100_000, 400, "no JSON"),
    (b"\xff\xfe", 400, "no JSON"),
    (b"[1, 2]", 400, "an object"),
    (b'{"arguments": []}', 400, "an object"),
    (b'{"args": [[[1, 2, 3, 4]]]}', 400, "names scale"),
    (b'{"args": [[[1, 2, 3]]], "kwargs": {"scale": [1]}}', 400, "the shape"),
    (b'{"args": [[[1, 2, 3, 4]]], "kwargs": {"scale": [1, 2]}}', 400, "different numbers of rows"),
    (b'{"args": [[]], "kwargs": {"scale": []}}', 400, r"\[0\]\[0\] requires"),
    (b" " * 3000, 413, "more than 2000 bytes"),
]


@pytest.mark.parametrize(("sent", "status", "text"), BAD)
def test_bad_requests(programs, sent, status, text):
    async def use(send):
        bad = await send("POST", "/run", sent)
        return bad, await send("POST", "/run", body(*request(1)))

    limits = Limits(body=200_000 if len(sent) > 5000 else 2000)
    bad, good = serving(programs, use, axis=0, limits=limits)
    assert bad.status == status
    assert re.search(text, bad.json["error"])
    assert good.status == 200


class Slow:
    """A program that takes its time, or fails."""

    def __init__(self, program, seconds, error=None):
        self.__dict__.update(vars(program))
        self.in_tree, self.out_tree = program.in_tree, program.out_tree
        self.in_avals, self.out_avals = program.in_avals, program.out_avals
        self.is_open = program.is_open
        self.program, self.seconds, self.error = program, seconds, error

    def __call__(self, *args, **kwargs):
        time.sleep(self.seconds)
        if self.error:
            raise self.error
        return self.program(*args, **kwargs)


def test_too_many_requests(programs):
    async def use(send):
        return await asyncio.gather(*[send("POST", "/run", body(*request(8))) for _ in range(12)])

    answers = serving([Slow(programs[0], 0.05)], use, axis=0, limits=Limits(waiting=3))
    statuses = [a.status for a in answers]
    assert {200, 503} == set(statuses)
    assert statuses.count(200) >= 3
    assert all(a.headers["retry-after"] == "1" for a in answers if a.status == 503)


def test_requests_that_take_too_long_or_fail(programs):
    async def use(send):
        late = await send("POST", "/run", body(*request(1)))
        return late, (await send("GET", "/health")).status

    late, health = serving([Slow(programs[0], 0.3)], use, axis=0, limits=Limits(timeout=0.05))
    assert (late.status, health) == (504, 200)
    failed, _ = serving([Slow(programs[0], 0, ArithmeticError("no"))], use, axis=0)
    assert (failed.status, failed.json["error"]) == (500, "ArithmeticError: no")


def test_what_waits_is_answered_before_the_end(programs):
    async def main():
        app = application([Slow(programs[0], 0.1)], axis=0)
        async with running(app) as send:
            waiting = [
                asyncio.create_task(send("POST", "/run", body(*request(8)))) for _ in range(4)
            ]
            await asyncio.sleep(0.05)
        return [(await w).status for w in waiting]

    assert asyncio.run(main()) == [200] * 4


def test_programs_that_do_not_fit(programs):
    key = lumjax.export.export(lumjax.jit(lumjax.random.key_data))(lumjax.random.key(0))
    total = lumjax.export.export(lumjax.jit(jnp.sum))(jnp.ones(3))
    other = lumjax.export.export(lumjax.jit(jnp.sin))(jnp.ones(3))
    for bad, axis, text in (
        ([], 0, "one program"),
        (programs, None, "several with an axis"),
        ([key], None, "real numbers"),
        ([total], 0, "as many rows"),
        ([other], 1, "as many rows"),
        ([*programs, other], 0, "equal but for axis 0"),
    ):
        with pytest.raises(ArgumentValueError, match=text):
            application(bad, axis=axis)

"""The server as people start it: many clients at once, and a stop that loses nothing."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)


@lumjax.jit
def model(x):
    return jnp.tanh(jnp.tanh(x @ WEIGHTS) @ WEIGHTS)


@contextmanager
def server(folder, *options):
    """A server on a free port of this machine."""
    paths = [folder / f"{n}.lumjax" for n in (1, 64)]
    for n, path in zip((1, 64), paths, strict=True):
        lumjax.export(model, jnp.zeros((n, 16)), path=path)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "-m", "lumjax.serve", *map(str, paths), "--axis=0", f"--port={port}"]
    with subprocess.Popen([*command, *options], cwd=ROOT) as process:
        try:
            for _ in range(600):
                assert process.poll() is None, "it ended"
                try:
                    if ask(port, "GET", "/health")[0] == 200:
                        break
                except OSError:
                    time.sleep(0.1)
            yield process, port
        finally:
            process.send_signal(signal.SIGTERM)
            # uvicorn ends by the signal, once all is answered
            assert process.wait(60) in (0, -signal.SIGTERM)


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="stops with a signal")
def test_two_hundred_clients_at_once(tmp_path):
    answers = {}

    def client(number):
        rng = np.random.default_rng(number)
        for k in range(3):
            x = rng.standard_normal((1 + number % 3, 16)).astype(np.float32)
            status, found = ask(port, "POST", "/run", json.dumps({"args": [x.tolist()]}))
            answers[number, k] = x, status, found

    with server(tmp_path) as (_, port):
        threads = [threading.Thread(target=client, args=(n,)) for n in range(200)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        text = ask(port, "GET", "/metrics")[1].decode()
    assert len(answers) == 600
    for x, status, found in answers.values():
        assert status == 200, found
        np.testing.assert_allclose(json.loads(found), model(x), rtol=1e-4, atol=1e-5)
    assert 'lumjax_requests_total{status="200"} 600' in text

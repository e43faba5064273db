"""Requests a second of a served MLP: one at a time, and joined along an open axis of rows.

A server of its own process for each, on this machine; clients in a third process keep their
connections and ask for one row at a time, as safetensors. The servers take turns.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import files, random

SIZES = (784, 2048, 2048, 10)
CLIENTS, REQUESTS, ROUNDS, ROWS = 200, 8, 5, 256
KIND = "application/x-safetensors"


def export(folder: Path, rows: int) -> Path:
    """The MLP for one row, or for up to so many."""
    keys = random.split(random.key(0), len(SIZES))
    pairs = zip(keys, SIZES, SIZES[1:], strict=False)
    weights = [0.05 * random.normal(k, (m, n)) for k, m, n in pairs]

    @lumjax.jit(dynamic=None if rows == 1 else {0: lumjax.dim("rows", max=rows)})
    def mlp(x):
        for w in weights[:-1]:
            x = jnp.maximum(x @ w, 0)
        return x @ weights[-1]

    path = folder / f"mlp{rows}.lumjax"
    lumjax.export(mlp, jnp.zeros((rows, SIZES[0])), path=path)
    return path


class Server:
    """A server, until it is stopped."""

    def __init__(self, *paths: Path) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        command = [sys.executable, "-m", "lumjax.serve", *map(str, paths), "--axis=0"]
        self.process = subprocess.Popen([*command, f"--port={self.port}"])
        while self.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port)):
                    return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the server ended")

    def stop(self) -> None:
        """Stop it."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def load(self) -> float:
        """Requests a second that many clients get answered."""
        rows = np.random.default_rng(0).random((CLIENTS, 1, SIZES[0]), np.float32)
        threads = [threading.Thread(target=self._client, args=(x,)) for x in rows]
        started = time.perf_counter()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return CLIENTS * REQUESTS / (time.perf_counter() - started)

    def _client(self, x: np.ndarray) -> None:
        body = files.packed({"[0][0]": x}, {})
        head = (
            f"POST /run HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {KIND}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            for _ in range(REQUESTS):
                connection.sendall(head.encode() + body)
                _wait(connection)


def _wait(connection: socket.socket) -> None:
    """Read one answer, with as little work as that takes: the clients are on the same cores."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += connection.recv(1 << 16)
    head, rest = found.split(b"\r\n\r\n", 1)
    length = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])  # type: ignore[index]
    while len(rest) < length:
        rest += connection.recv(1 << 16)
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise RuntimeError(head + rest)


def main(out: str) -> None:
    """Serve, ask, and print the ratio."""
    with tempfile.TemporaryDirectory() as name:
        one, many = (export(Path(name), n) for n in (1, ROWS))
        servers = {"alone": Server(one), "joined": Server(many)}
        try:
            found: dict[str, list[float]] = {n: [] for n in servers}
            for number in range(ROUNDS + 1):
                for n, server in servers.items():
                    rate = server.load()
                    if number:
                        found[n].append(rate)
        finally:
            for server in servers.values():
                server.stop()
    alone, joined = (statistics.median(found[n]) for n in servers)
    print(f"alone {alone:.0f} requests a second, joined {joined:.0f}: {joined / alone:.2f} x")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "serve.json").write_text(json.dumps(found, indent=1))

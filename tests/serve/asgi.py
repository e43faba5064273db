"""Requests to an ASGI application in this process."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass
class Answer:
    """What came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@asynccontextmanager
async def running(app):
    """The application between its start and its end; gives a function that sends a request."""
    to_app, from_app = asyncio.Queue(), asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
    task = asyncio.create_task(app(scope, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"

    async def send(method, path, body=b"", kind="application/json"):
        parts = [body[k : k + 1000] for k in range(0, len(body), 1000)] or [b""]
        messages = [
            {"type": "http.request", "body": p, "more_body": k + 1 < len(parts)}
            for k, p in enumerate(parts)
        ]
        sent = []

        async def receive():
            if not messages:
                await asyncio.sleep(3600)
            return messages.pop(0)

        async def take(message):
            sent.append(message)

        await app(
            {"type": "http", "method": method, "path": path, "query_string": b"",
             "headers": [(b"content-type", kind.encode())]}, receive, take,
        )  # fmt: skip
        headers = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers, b"".join(m.get("body", b"") for m in sent[1:]))

    yield send
    await to_app.put({"type": "lifespan.shutdown"})
    assert (await from_app.get())["type"] == "lifespan.shutdown.complete"
    await task

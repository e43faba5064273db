"""Exported programs over HTTP: `python -m lumjax.serve model.lumjax`.

    values.py     requests' and answers' values: JSON and safetensors
    batching.py   requests that wait for each other and run as one
    metrics.py    counters as Prometheus reads them
    app.py        the ASGI application

Needs the extra `serve` (uvicorn and starlette).
"""

from __future__ import annotations

from lumjax.serve.app import Limits, application

__all__ = ["Limits", "application"]

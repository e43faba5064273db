"""The onnx package, which reads model files and knows the operators' schemas."""

from __future__ import annotations

from typing import Any

try:
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import defs, helper, numpy_helper
except ImportError as error:
    raise ImportError(
        "lumjax.onnx: requires the onnx package; it is not installed. "
        "Install it with `pip install 'lumjax[onnx]'`."
    ) from error

__all__ = ["DecodeError", "helper", "numpy_helper", "onnx", "schema_of"]


def schema_of(op: str, opset: int, domain: str) -> Any:
    """The schema of an operator in an opset, None if it has none."""
    try:
        return defs.get_schema(op, min(max(opset, 1), 1 << 30), domain)
    except defs.SchemaError:
        return None

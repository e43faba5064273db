"""What is raised for a model that cannot be read or run, or needs what is not offered."""

from __future__ import annotations

from lumjax.errors import LumjaxError


class OnnxError(LumjaxError, ValueError):
    """A model file that is malformed, or a node that cannot compute what it is given.

    >>> import lumjax.onnx
    >>> try:
    ...     lumjax.onnx.load(b"not a model")
    ... except OnnxError as error:
    ...     print(error.required)
    a serialised onnx.ModelProto
    """


class UnsupportedOnnxError(OnnxError, NotImplementedError):
    """A model that is well formed but needs an operator, a type or an opset that is not offered."""

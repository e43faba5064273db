"""ONNX models as functions: `load` gives `(fn, params)` for jit, grad and vmap.

Needs the onnx package, which reads the files: `pip install 'lumjax[onnx]'`.
"""

from __future__ import annotations

from lumjax.onnx.faults import OnnxError as OnnxError
from lumjax.onnx.faults import UnsupportedOnnxError as UnsupportedOnnxError
from lumjax.onnx.graph import Port as Port
from lumjax.onnx.model import Model as Model
from lumjax.onnx.model import load as load

__all__ = ["Model", "OnnxError", "Port", "UnsupportedOnnxError", "load"]

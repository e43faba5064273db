"""Tensors of a model file as NumPy arrays: claimed sizes are held to the data that is there."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from lumjax.onnx.faults import OnnxError, UnsupportedOnnxError
from lumjax.onnx.package import helper, numpy_helper, onnx

_BITS = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
_STRING = 8  # TensorProto.STRING
_PER_FIELD = {"complex64": 2, "complex128": 2}  # entries of the typed field for an element


def dtype_of(code: int, where: str) -> np.dtype[Any]:
    """The NumPy dtype of a TensorProto.DataType; strings are objects."""
    if code == _STRING:
        return np.dtype(object)
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(code))
    except KeyError:
        raise OnnxError(
            operation=where,
            required="an element type of onnx.TensorProto.DataType",
            got=f"the number {code}",
            fix="the file is damaged or newer than the installed onnx package: export it again",
        ) from None


def bits_of(dtype: np.dtype[Any]) -> int:
    """How many bits an element takes in `raw_data`."""
    return _BITS.get(dtype.name, 8 * dtype.itemsize)


def tensor(proto: Any, folder: Path | None, where: str) -> np.ndarray:
    """A TensorProto's values. External data is read from inside `folder` only."""
    name = f"{where}, tensor {proto.name!r}" if proto.name else where
    dtype = dtype_of(proto.data_type, name)
    shape = tuple(proto.dims)
    if any(d < 0 for d in shape):
        raise _wrong(name, "sizes that are not negative", f"shape {shape}")
    count = math.prod(shape)
    if proto.HasField("segment"):
        raise UnsupportedOnnxError(
            operation=name,
            required="a tensor that is whole",
            got="one segment of a tensor",
            fix="save the model again with onnx.save, which writes whole tensors",
        )
    if dtype.hasobject:
        return _strings(proto, shape, count, name)
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        raw = _external(proto, folder, name, -(-count * bits_of(dtype) // 8))
        return _of_raw(raw, dtype, shape, count, name)
    if proto.HasField("raw_data"):
        return _of_raw(proto.raw_data, dtype, shape, count, name)
    return _of_field(proto, dtype, shape, count, name)


def _of_raw(
    raw: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], count: int, name: str
) -> np.ndarray:
    bits = bits_of(dtype)
    if len(raw) != -(-count * bits // 8):
        raise _wrong(name, f"{-(-count * bits // 8)} bytes for {shape} {dtype}", f"{len(raw)}")
    if bits >= 8:
        return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    return _unpacked(np.frombuffer(raw, np.uint8), dtype, count).reshape(shape)


def _unpacked(packed: np.ndarray, dtype: np.dtype[Any], count: int) -> np.ndarray:
    """Elements of 4 or 2 bits, the first in the low bits."""
    bits = bits_of(dtype)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    small = ((packed[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count]
    if dtype.name.startswith("float"):
        return small.view(dtype)
    if dtype.name.startswith("int"):
        signed = small.astype(np.int8)
        small = np.where(signed >= 1 << (bits - 1), signed - (1 << bits), signed)
    return small.astype(dtype)


def _of_field(
    proto: Any, dtype: np.dtype[Any], shape: tuple[int, ...], count: int, name: str
) -> np.ndarray:
    field = helper.tensor_dtype_to_field(proto.data_type)
    have = len(getattr(proto, field))
    need = count * _PER_FIELD.get(dtype.name, 1)
    if bits_of(dtype) < 8:
        need = -(-count * bits_of(dtype) // 8)
    if have != need:
        raise _wrong(name, f"{need} values in {field} for {shape} {dtype}", f"{have}")
    try:
        return np.array(numpy_helper.to_array(proto)).reshape(shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise _wrong(name, f"values of {dtype}", str(error)) from error


def _strings(proto: Any, shape: tuple[int, ...], count: int, name: str) -> np.ndarray:
    if len(proto.string_data) != count:
        raise _wrong(name, f"{count} strings for {shape}", f"{len(proto.string_data)}")
    found = np.empty(count, object)
    for k, entry in enumerate(proto.string_data):
        found[k] = text(entry, name)
    return found.reshape(shape)


def text(entry: Any, name: str) -> str:
    """Bytes of a model file as text."""
    try:
        return entry if isinstance(entry, str) else bytes(entry).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _wrong(name, "text in UTF-8", str(error)) from error


def _external(proto: Any, folder: Path | None, name: str, need: int) -> bytes:
    entries = {e.key: e.value for e in proto.external_data}
    if folder is None:
        raise OnnxError(
            operation=name,
            required="a model file, whose folder holds external data",
            got="bytes, with a tensor that lies outside them",
            fix="pass the path of the model, or save it with its data inside",
        )
    place = os.path.realpath(folder / entries.get("location", ""))
    if not place.startswith(os.path.realpath(folder) + os.sep) or not os.path.isfile(place):
        raise _wrong(name, "external data inside the model's folder", repr(entries.get("location")))
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", need))
    except ValueError as error:
        raise _wrong(name, "whole numbers as offset and length", str(error)) from error
    if offset < 0 or length != need or offset + length > os.path.getsize(place):
        got = f"offset {offset}, length {length} in a file of {os.path.getsize(place)}"
        raise _wrong(name, f"{need} bytes of external data", got)
    with open(place, "rb") as file:
        file.seek(offset)
        return file.read(length)


def _wrong(name: str, required: str, got: str) -> OnnxError:
    return OnnxError(
        operation=name,
        required=required,
        got=got,
        fix="the file is damaged: export or download it again",
    )

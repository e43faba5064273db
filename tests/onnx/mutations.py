"""Small models, and ways to damage them: their bytes, or what their fields say.

python -m tests.onnx.mutations FIRST LAST    # stops at a fault
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import numpy as np
import onnx.parser

import lumjax.onnx

_BLOCKS = (Path(__file__).parent / "models.txt").read_text(encoding="utf-8").split("\n---\n")
TEXTS = {onnx.parser.parse_model(text).graph.name: text for text in _BLOCKS}
NAMES = sorted(TEXTS)
NUMBERS = (0, 1, -1, 2, 3, 7, 64, -64, 1 << 20, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63))
WORDS = ("", "x", "y", "nowhere", "Add", "Loop", "Conv", "mine", "\x00", "reflect", "é" * 40)


def model(name):
    return onnx.parser.parse_model(TEXTS[name])


def _bytes(raw, chance):
    """Bytes flipped, cut, doubled or put in."""
    raw = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        k = chance.randrange(len(raw))
        match chance.randrange(4):
            case 0:
                raw[k] ^= 1 << chance.randrange(8)
            case 1:
                raw[k] = chance.randrange(256)
            case 2:
                del raw[k : k + chance.randint(1, 8)]
            case _:
                raw[k:k] = raw[k : k + chance.randint(1, 16)]
        if not raw:
            break
    return bytes(raw)


def _messages(message):
    """A message and all inside it."""
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for item in value if hasattr(value, "append") or hasattr(value, "add") else [value]:
                yield from _messages(item)


def _value(field, chance):
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        word = chance.choice(WORDS)
        return word if field.type == field.TYPE_STRING else word.encode()
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return chance.choice((0.0, -1.0, 1e30, float("nan"), float("inf"), 0.5))
    if field.type == field.TYPE_ENUM:
        return chance.choice([v.number for v in field.enum_type.values])
    number = chance.choice(NUMBERS)
    if field.type in (field.TYPE_UINT32, field.TYPE_UINT64):
        return abs(number) % (1 << 32)
    return max(min(number, (1 << 31) - 1), -(1 << 31)) if field.type == field.TYPE_INT32 else number


def _fields(proto, chance):
    """A few fields changed, cleared or doubled."""
    for _ in range(chance.randint(1, 3)):
        message = chance.choice(list(_messages(proto)))
        fields = list(message.DESCRIPTOR.fields)
        present = [f for f, _ in message.ListFields()]
        field = chance.choice(present if present and chance.random() < 0.8 else fields)
        value = getattr(message, field.name)
        if field.type == field.TYPE_MESSAGE:
            if hasattr(value, "add"):
                if len(value) and chance.random() < 0.5:
                    del value[chance.randrange(len(value))]
                elif len(value):
                    value.add().CopyFrom(chance.choice(list(value)))
            elif chance.random() < 0.3:
                message.ClearField(field.name)
        elif hasattr(value, "append"):
            if len(value) and chance.random() < 0.7:
                value[chance.randrange(len(value))] = _value(field, chance)
            else:
                value.append(_value(field, chance))
        else:
            setattr(message, field.name, _value(field, chance))
    return proto.SerializeToString()


def damaged(number):
    """The `number`-th case: the name of the model, and its bytes."""
    chance = random.Random(number)
    name = NAMES[number % len(NAMES)]
    if chance.random() < 0.4:
        return name, _bytes(model(name).SerializeToString(), chance)
    return name, _fields(model(name), chance)


def inputs(fn):
    """Values that fit the signature; None where they would be too large to make."""
    made = []
    for port in fn.inputs:
        if port.kind != "tensor" or port.dtype is None:
            made.append([] if port.kind == "sequence" else np.ones(3, np.float32))
            continue
        shape = [d if isinstance(d, int) else 3 for d in port.shape or ()]
        if any(d < 0 for d in shape) or np.prod([float(d) for d in shape]) > 1e6:
            return None
        ones = np.ones(shape, np.float32)
        made.append(
            ones.astype(str).astype(object) if port.dtype.hasobject else ones.astype(port.dtype)
        )
    return made


def outcome(number):
    """What comes of a case: "ran", "refused when loaded", "refused when run", "not runnable".

    Anything but an OnnxError goes through.
    """
    _, raw = damaged(number)
    try:
        fn, params = lumjax.onnx.load(raw, max_bytes=1 << 24, max_trips=1000)
    except lumjax.onnx.OnnxError:
        return "refused when loaded"
    made = inputs(fn)
    if made is None:
        return "not runnable"
    try:
        fn(params, *made)
    except lumjax.onnx.OnnxError:
        return "refused when run"
    return "ran"


def main():
    first, last = map(int, sys.argv[1:3])
    seen, slowest = {}, (0.0, 0)
    for number in range(first, last):
        start = time.process_time()
        try:
            found = outcome(number)
        except BaseException:
            print(f"case {number}: {damaged(number)[0]}")
            raise
        seen[found] = seen.get(found, 0) + 1
        slowest = max(slowest, (time.process_time() - start, number))
    print(seen, f"slowest: {slowest[0]:.2f} s (case {slowest[1]})")


if __name__ == "__main__":
    main()

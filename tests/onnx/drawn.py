"""Single nodes with drawn attributes and shapes, for comparing with another runtime.

python -m tests.onnx.drawn FIRST LAST [OP]    # cases by number, against onnxruntime
"""

from __future__ import annotations

import random
import sys
import warnings

import numpy as np
from onnx import helper

import lumjax
import lumjax.onnx


class Draw:
    """A node that is being drawn: its inputs, attributes and outputs."""

    def __init__(self, number):
        self.chance = random.Random(number)
        self.numbers = np.random.default_rng(number)
        self.opset = self.chance.choice((13, 15, 17, 18, 19, 20))
        self.inputs, self.attributes, self.outputs = [], {}, ["y"]

    def size(self, low=1, high=7):
        return self.chance.randint(low, high)

    def pick(self, *options):
        return self.chance.choice(options)

    def floats(self, *shape):
        self.inputs.append(self.numbers.normal(size=shape).astype(np.float32))

    def integers(self, low, high, *shape, dtype=np.int64):
        self.inputs.append(self.numbers.integers(low, high, shape).astype(dtype))

    def known(self, values, dtype=np.int64):
        self.inputs.append(np.array(values, dtype))

    def windows(self, spatial, sizes, dilated=True):
        """Strides, dilations and pads or auto_pad for windows that fit."""
        rank = len(spatial)
        if self.chance.random() < 0.7:
            self.attributes["strides"] = [self.size(1, 3) for _ in range(rank)]
        if dilated and self.chance.random() < 0.4:
            self.attributes["dilations"] = [self.size(1, 2) for _ in range(rank)]
        mode = self.pick("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
        strides = self.attributes.get("strides", [1] * rank)
        apart = any(k < s for k, s in zip(sizes, strides, strict=True))
        if mode.startswith("SAME") and apart:
            mode = "VALID"  # onnxruntime pads by a negative number there
        if mode != "NOTSET":
            self.attributes["auto_pad"] = mode
            self.attributes.pop("dilations", None)
        elif self.chance.random() < 0.7:
            ends = [self.size(0, k - 1) for k in sizes] + [self.size(0, k - 1) for k in sizes]
            self.attributes["pads"] = ends


def conv(d):
    rank, group = d.size(1, 3), d.size(1, 2)
    sizes = [d.size(1, 3) for _ in range(rank)]
    spatial = [d.size(5, 8) for _ in range(rank)]
    d.floats(d.size(1, 2), 2 * group, *spatial)
    d.floats(3 * group, 2, *sizes)
    if d.pick(True, False):
        d.floats(3 * group)
    d.attributes["group"] = group
    d.windows(spatial, sizes)
    return "Conv"


def conv_transpose(d):
    rank, group = d.size(1, 2), d.size(1, 2)
    sizes = [d.size(2, 4) for _ in range(rank)]
    spatial = [d.size(3, 6) for _ in range(rank)]
    d.floats(d.size(1, 2), 2 * group, *spatial)
    d.floats(2 * group, 3, *sizes)
    strides = [d.size(1, 3) for _ in range(rank)]
    d.attributes |= {"group": group, "strides": strides}
    mode = d.pick("NOTSET", "SAME_UPPER", "SAME_LOWER", "shape")
    if mode.startswith("SAME"):
        if any(k < s for k, s in zip(sizes, strides, strict=True)):
            return None
        d.attributes["auto_pad"] = mode
    elif mode == "NOTSET":
        d.attributes["pads"] = [d.size(0, 1) for _ in range(2 * rank)]
        d.attributes["output_padding"] = [d.size(0, s - 1) for s in strides]
        if d.pick(True, False):
            d.attributes["dilations"] = [d.size(1, 2) for _ in range(rank)]
    else:
        d.attributes["output_shape"] = [
            s * (n - 1) + k - d.size(0, 1) for s, n, k in zip(strides, spatial, sizes, strict=True)
        ]
    return "ConvTranspose"


def pool(d):
    op, rank = d.pick("MaxPool", "AveragePool", "LpPool"), d.size(1, 3)
    sizes = [d.size(1, 3) for _ in range(rank)]
    spatial = [d.size(5, 9) for _ in range(rank)]
    d.floats(d.size(1, 2), 2, *spatial)
    d.attributes["kernel_shape"] = sizes
    d.opset = max(d.opset, 19)
    d.windows(spatial, sizes, op == "MaxPool")
    if op != "LpPool":
        d.attributes["ceil_mode"] = d.size(0, 1)
    if op == "AveragePool":
        d.attributes["count_include_pad"] = d.size(0, 1)
    if op == "LpPool":
        d.attributes["p"] = d.size(1, 3)
    if op == "MaxPool" and d.pick(True, False):
        d.outputs = ["y", "i"]
        d.attributes["storage_order"] = d.size(0, 1)
    return op


def resize(d):
    d.opset = d.pick(13, 18, 19)
    rank = d.size(1, 2)
    shape = [d.size(2, 8) for _ in range(rank)]
    d.floats(1, 2, *shape)
    mode = d.pick("nearest", "linear", "cubic")
    if mode == "cubic" and rank != 2:
        return None
    d.attributes["mode"] = mode
    d.attributes["coordinate_transformation_mode"] = d.pick(
        "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"
    )
    if mode == "nearest":
        d.attributes["nearest_mode"] = d.pick(
            "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"
        )
    if mode == "cubic":
        d.attributes["cubic_coeff_a"] = d.pick(-0.5, -0.75)
        d.attributes["exclude_outside"] = d.size(0, 1)
    d.known([], np.float32)
    if d.pick(True, False):
        scales = [d.pick(0.5, 0.75, 1.5, 2, 3) for _ in shape]
        whole = all(float(s * n).is_integer() for s, n in zip(scales, shape, strict=True))
        if "align" in d.attributes["coordinate_transformation_mode"] and not whole:
            return None  # the suite takes the size with its fraction, onnxruntime does not
        d.known([1, 1, *scales], np.float32)
    else:
        d.known([], np.float32)
        d.known([1, 2, *(d.size(1, 9) for _ in shape)])
    return "Resize"


def recurrent(d):
    op = d.pick("RNN", "GRU", "LSTM")
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    way = d.pick("forward", "reverse", "bidirectional")
    n, time, batch, width, hidden = 1 + (way == "bidirectional"), d.size(), d.size(1, 3), 2, 3
    d.floats(time, batch, width)
    d.floats(n, gates * hidden, width)
    d.floats(n, gates * hidden, hidden)
    d.floats(n, 2 * gates * hidden)
    d.integers(1, time + 1, batch, dtype=np.int32)
    if d.pick(True, False):
        d.floats(n, batch, hidden)
        if op == "LSTM":
            d.floats(n, batch, hidden)
            if d.pick(True, False):
                d.floats(n, 3 * hidden)
    d.attributes |= {"hidden_size": hidden, "direction": way}
    if d.pick(True, False):
        d.attributes["clip"] = 0.5
    if op == "GRU":
        d.attributes["linear_before_reset"] = d.size(0, 1)
    if op == "LSTM" and d.pick(True, False):
        d.attributes["input_forget"] = 1
    d.outputs = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    return op


def slices(d):
    shape = [d.size(2, 6) for _ in range(3)]
    d.floats(*shape)
    axes = d.chance.sample(range(3), d.size(1, 3))
    step = [d.pick(1, 2, -1, -2, 3) for _ in axes]
    d.known([d.size(-8, 8) for _ in axes])
    far = [(1 << 63) - 1 if s > 0 else -(1 << 63) for s in step]
    d.known([d.pick(d.size(-8, 8), end) for end in far])
    d.known([d.pick(a, a - 3) for a in axes])
    d.known(step)
    return "Slice"


def pad(d):
    shape = [d.size(3, 5) for _ in range(2)]
    d.floats(*shape)
    mode = d.pick("constant", "reflect", "edge", "wrap" if d.opset >= 19 else "edge")
    low = -1 if mode in ("constant", "edge") else 0
    d.known([d.size(low, 2) for _ in range(4)])
    d.attributes["mode"] = mode
    return "Pad"


def reduce(d):
    op = d.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
                "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare")  # fmt: skip
    d.floats(2, 3, 4)
    axes = d.chance.sample(range(-3, 0), d.size(1, 3))
    d.attributes["keepdims"] = d.size(0, 1)
    if op == "ReduceSum" or d.opset >= 18:
        d.known(axes)
        if d.opset < 20 and op in ("ReduceMax", "ReduceMin"):
            d.opset = 18
    else:
        d.attributes["axes"] = axes
    return op


def search(d):
    op = d.pick("TopK", "ArgMax", "ArgMin", "CumSum", "Softmax", "LogSoftmax", "Hardmax")
    shape = [3, 4, 5]
    d.inputs.append(d.numbers.integers(-3, 4, shape).astype(np.float32))
    axis = d.size(-3, 2)
    if op == "TopK":
        d.known([d.size(0, 3)])
        d.attributes |= {"axis": axis, "largest": d.size(0, 1)}
        d.outputs = ["y", "i"]
    elif op == "CumSum":
        d.known(axis)
        d.attributes |= {"exclusive": d.size(0, 1), "reverse": d.size(0, 1)}
    else:
        d.attributes["axis"] = axis
        if op.startswith("Arg"):
            d.attributes |= {"keepdims": d.size(0, 1), "select_last_index": d.size(0, 1)}
        elif d.pick(True, False):
            d.opset = 11
    return op


def indexed(d):
    op = d.pick("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "OneHot")
    shape, axis = [3, 4, 5], d.size(-3, 2)
    if op == "OneHot":
        d.integers(-4, 4, 2, 3)
        d.known(4)
        d.known([-1, 2], np.float32)
        d.attributes["axis"] = axis
        return op
    d.floats(*shape)
    if op == "Gather":
        d.integers(-shape[axis], shape[axis], 2, 2)
        d.attributes["axis"] = axis
    elif op in ("GatherElements", "ScatterElements"):
        some = [d.size(1, n) for n in shape]
        unique = d.numbers.permutation(shape[axis])[: some[axis]] - d.pick(0, shape[axis])
        view = [1, 1, 1]
        view[axis] = some[axis]
        d.known(np.broadcast_to(unique.reshape(view), some))
        d.attributes["axis"] = axis
        if op == "ScatterElements":
            d.floats(*some)
            if d.opset >= 18:
                d.attributes["reduction"] = d.pick("none", "add", "mul", "max", "min")
    elif op == "GatherND":
        batch = d.size(0, 1)
        d.attributes["batch_dims"] = batch
        d.integers(-3, 3, *shape[:batch], 2, d.size(1, 3 - batch))
    else:
        d.known([[0, 1], [-1, 2], [1, -1]])
        d.floats(3, 5)
        if d.opset >= 18:
            d.attributes["reduction"] = d.pick("none", "add", "mul", "max", "min")
    return op


def quantised(d):
    op = d.pick("QuantizeLinear", "DequantizeLinear", "QLinearConv", "MatMulInteger")
    kind = d.pick(np.uint8, np.int8)
    low, high = (0, 256) if kind == np.uint8 else (-128, 128)
    if op == "MatMulInteger":
        d.integers(low, high, 2, 3, 4, dtype=kind)
        d.integers(low, high, 4, 5, dtype=kind)
        d.known(7, kind)
        d.known(3, kind)
        return op
    if op == "QLinearConv":
        d.integers(0, 256, 1, 2, 6, 6, dtype=np.uint8)
        d.known(0.05, np.float32)
        d.known(120, np.uint8)
        d.integers(-64, 64, 3, 2, 2, 2, dtype=np.int8)  # onnxruntime saturates sums of larger ones
        d.known([0.1, 0.02, 0.05], np.float32)
        d.known([0, 0, 0], np.int8)
        d.known(0.3, np.float32)
        d.known(100, np.uint8)
        d.windows([6, 6], [2, 2])
        return op
    if op == "QuantizeLinear":
        d.floats(2, 3, 4)
    else:
        d.integers(low, high, 2, 3, 4, dtype=kind)
    axis = d.size(-3, 2)
    many = d.pick(True, False)
    d.known([0.013, 0.027, 0.05, 0.1][: [2, 3, 4][axis]] if many else 0.031, np.float32)
    zeros = [1, 5, 0, 3][: [2, 3, 4][axis]] if many else 4
    d.known(zeros, kind)
    d.attributes["axis"] = axis
    return op


def normal(d):
    op = d.pick(
        "LayerNormalization", "InstanceNormalization", "BatchNormalization", "LpNormalization",
        "LRN", "GridSample", "DepthToSpace", "Einsum", "Mod",
    )  # fmt: skip
    d.opset = max(d.opset, 17)
    if op == "Einsum":
        d.floats(2, 3, 4)
        d.floats(4, 3)
        d.attributes["equation"] = d.pick("bij,jk->bik", "bij,ji->b", "bij,ji", "...ij,ji->...")
        return op
    if op == "Mod":
        kind = d.pick(np.int32, np.float32)
        d.inputs.append((d.numbers.normal(size=20) * 20).astype(kind))
        d.inputs.append((d.numbers.integers(1, 9, 20) * d.numbers.choice([-1, 1], 20)).astype(kind))
        d.attributes["fmod"] = 1 if kind == np.float32 else d.size(0, 1)
        return op
    if op == "GridSample":
        d.floats(2, 2, 4, 5)
        d.inputs.append(d.numbers.uniform(-1.4, 1.4, (2, 3, 3, 2)).astype(np.float32))
        new = d.opset >= 20
        d.attributes |= {
            "mode": d.pick(*(("linear", "nearest", "cubic") if new
                             else ("bilinear", "nearest", "bicubic"))),
            "padding_mode": d.pick("zeros", "border", "reflection"),
            "align_corners": d.size(0, 1),
        }  # fmt: skip
        return op
    d.floats(2, 8, 4, 4)
    if op == "LayerNormalization":
        axis = d.size(-4, 3)
        d.floats(*(2, 8, 4, 4)[axis:])
        d.floats(*(2, 8, 4, 4)[axis:])
        d.attributes["axis"] = axis
        d.outputs = ["y", "m", "s"]
    elif op == "InstanceNormalization":
        d.floats(8)
        d.floats(8)
    elif op == "BatchNormalization":
        for _ in range(3):
            d.floats(8)
        d.inputs.append(np.abs(d.numbers.normal(size=8)).astype(np.float32) + 0.1)
    elif op == "LpNormalization":
        d.attributes |= {"axis": d.size(-4, 3), "p": d.size(1, 2)}
    elif op == "LRN":
        d.attributes |= {"size": d.pick(1, 3, 5), "alpha": 0.3, "beta": 0.6, "bias": 1.5}
    else:
        d.attributes |= {"blocksize": 2, "mode": d.pick("DCR", "CRD")}
    return op


def regions(d):
    op = d.pick("MaxRoiPool", "RoiAlign", "NonMaxSuppression")
    if op == "NonMaxSuppression":
        corners = d.numbers.uniform(0, 1, (2, 8, 4)).astype(np.float32)
        d.inputs.append(corners)
        d.inputs.append(d.numbers.permutation(48).reshape(2, 3, 8).astype(np.float32) / 48)
        d.known([d.size(0, 5)])
        d.known([d.pick(0.1, 0.3, 0.6)], np.float32)
        d.known([d.pick(0.0, 0.4)], np.float32)
        d.attributes["center_point_box"] = d.size(0, 1)
        return op
    d.floats(2, 3, 6, 7)
    first = d.numbers.integers(0, 8, (4, 2))
    boxes = np.concatenate([first, first + d.numbers.integers(1, 7, (4, 2))], 1)
    owners = d.numbers.integers(0, 2, 4)
    scale = d.pick(0.5, 1.0)
    if op == "MaxRoiPool":
        d.known(np.concatenate([owners[:, None], boxes], 1), np.float32)
        d.attributes |= {"pooled_shape": [d.size(1, 3), d.size(1, 3)], "spatial_scale": scale}
        return op
    d.opset = max(d.opset, 17)
    d.known(boxes, np.float32)
    d.known(owners)
    d.attributes |= {
        "output_height": d.size(1, 3), "output_width": d.size(1, 3), "spatial_scale": scale,
        "sampling_ratio": d.size(0, 2),
        "coordinate_transformation_mode": d.pick("half_pixel", "output_half_pixel"),
    }  # fmt: skip
    return op


KINDS = (conv, conv_transpose, pool, resize, recurrent, slices, pad, reduce, search, indexed,
         quantised, normal, regions)  # fmt: skip


def drawn(number):
    """A model of one node and its inputs, or None where the draw makes no sense."""
    d = Draw(number)
    op = KINDS[number % len(KINDS)](d)
    if op is None:
        return None
    names = [f"x{k}" if x.size or x.ndim != 1 else "" for k, x in enumerate(d.inputs)]
    while names and not names[-1]:
        names.pop()
    given = {n: x for n, x in zip(names, d.inputs, strict=False) if n}
    node = helper.make_node(op, names, d.outputs, **d.attributes)
    ports = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in given.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(n) for n in d.outputs]
    graph = helper.make_graph([node], "net", ports, outputs)
    opsets = [helper.make_opsetid("", d.opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), given


def differs(number, runtime):
    """What is wrong with a case, "" if nothing, None if the other runtime does not take it."""
    found = drawn(number)
    if found is None:
        return None
    proto, given = found
    try:
        session = runtime.InferenceSession(
            proto.SerializeToString(), _quiet(runtime), providers=["CPUExecutionProvider"]
        )
        want = session.run(None, given)
    except Exception:  # its own limits, of which it has many
        return None
    with lumjax.enable_x64(True):
        fn, params = lumjax.onnx.load(proto)
        got = fn(params, **given)
    got = got if isinstance(got, tuple) else (got,)
    for g, w in zip(map(np.asarray, got), want, strict=True):
        if g.shape != w.shape or g.dtype != w.dtype:
            return f"{g.dtype}{g.shape} for {w.dtype}{w.shape}"
        near = 1 if proto.graph.node[0].op_type in ("QLinearConv", "QuantizeLinear") else 2e-5
        if not np.allclose(g.astype(float), w.astype(float), rtol=1e-4, atol=near, equal_nan=True):
            return f"off by {np.abs(g.astype(float) - w.astype(float)).max()}"
    return ""


def _quiet(runtime):
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return options


def main():
    import onnxruntime

    first, last = map(int, sys.argv[1:3])
    taken = 0
    for number in range(first, last):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = differs(number, onnxruntime)
            except Exception as error:
                found = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        taken += found is not None
        if found:
            proto, given = drawn(number)
            node = proto.graph.node[0]
            words = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            if len(sys.argv) < 4 or sys.argv[3] == node.op_type:
                print(number, node.op_type, proto.opset_import[0].version, words,
                      [x.shape for x in given.values()], found)  # fmt: skip
    print(f"{taken} of {last - first} compared")


if __name__ == "__main__":
    main()

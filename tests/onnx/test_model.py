"""Loading: signatures, symbolic sizes, parameters, folding, transformations, refusals."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import lumjax
import lumjax.numpy as jnp
import lumjax.onnx
from lumjax.errors import ConcretizationError
from tests.onnx.mutations import model

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def loaded(text, **options):
    return lumjax.onnx.load(onnx.parser.parse_model(f"{HEAD} {text}"), **options)


def rows(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_the_signature_keeps_symbolic_sizes():
    fn, params = lumjax.onnx.load(model("dense"))
    assert [str(p) for p in fn.inputs] == ["x: float32[n, 4]"]
    assert [str(p) for p in fn.outputs] == ["y: float32[n, 2]"]
    assert {k: v.shape for k, v in params.items()} == {"w": (4, 2), "b": (2,)}


def test_inputs_by_place_and_by_name():
    fn, params = lumjax.onnx.load(model("dense"))
    x = rows(3, 4)
    assert np.array_equal(fn(params, x), fn(params, x=x))


def test_a_path_and_bytes_and_a_model_are_the_same(tmp_path):
    proto = model("dense")
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    x = rows(2, 4)
    found = [
        fn(params, x)
        for fn, params in map(lumjax.onnx.load, (path, str(path), path.read_bytes(), proto))
    ]
    assert all(np.array_equal(f, found[0]) for f in found)


def test_jit_specialises_to_every_size():
    fn, params = lumjax.onnx.load(model("shapes"))
    f = lumjax.jit(fn)
    for n in (1, 2, 5):
        x = rows(n, 3, 4)
        assert f(params, x).shape == (n, 12)
        assert np.allclose(f(params, x), x.reshape(n, 12))


def test_shapes_fold_to_constants_of_the_program():
    fn, params = lumjax.onnx.load(model("shapes"))
    text = str(lumjax.make_jaxpr(fn)(params, rows(2, 3, 4)))
    assert "gather" not in text
    assert "concatenate" not in text


def test_gradients_reach_parameters_and_inputs():
    fn, params = loaded(
        "net (float[n, 3] x) => (float[n, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}>"
        "{ h = MatMul (x, w) y = Tanh (h) }"
    )
    x = rows(4, 3)

    def by_hand(params, x):
        return jnp.sum(jnp.tanh(x @ params["w"]))

    def by_model(params, x):
        return jnp.sum(fn(params, x))

    for f in (lambda f: f, lumjax.jit):
        want = f(lumjax.grad(by_hand, (0, 1)))(params, x)
        got = f(lumjax.grad(by_model, (0, 1)))(params, x)
        assert np.allclose(got[0]["w"], want[0]["w"], atol=1e-6)
        assert np.allclose(got[1], want[1], atol=1e-6)


def test_vmap_over_inputs():
    fn, params = loaded(
        "net (float[3] x) => (float[2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}>{ y = MatMul (x, w) }"
    )
    x = rows(5, 3)
    found = lumjax.vmap(fn, in_axes=(None, 0))(params, x)
    assert np.allclose(found, x @ np.asarray(params["w"]), atol=1e-5)


def test_new_parameters_are_used():
    fn, params = loaded("net (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul (x, w) }")
    x = np.ones(2, np.float32)
    assert fn(params, x).tolist() == [1, 2]
    assert fn({"w": params["w"] * 10}, x).tolist() == [10, 20]


def test_weights_in_constants_and_in_branches_are_parameters():
    big = numpy_helper.from_array(rows(10, 10), "w")
    inner = helper.make_graph(
        [
            helper.make_node("Constant", [], ["w"], value=big),
            helper.make_node("MatMul", ["x", "w"], ["p"]),
        ],
        "then",
        [],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, [None, 10])],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["q"])],
        "else",
        [],
        [helper.make_tensor_value_info("q", TensorProto.FLOAT, [None, 10])],
    )
    node = helper.make_node("If", ["b"], ["y"], then_branch=inner, else_branch=other)
    graph = helper.make_graph(
        [node],
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 10]),
            helper.make_tensor_value_info("b", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 10])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    fn, params = lumjax.onnx.load(proto)
    assert list(params) == ["w"]
    x = rows(2, 10)
    assert np.allclose(fn(params, x, np.array(True)), x @ np.asarray(params["w"]), atol=1e-4)
    slope = lumjax.grad(lambda p: jnp.sum(fn(p, x, np.array(True))))(params)["w"]
    assert np.allclose(slope, x.sum(0)[:, None] * np.ones((10, 10)), atol=1e-4)


def test_an_initialiser_that_is_also_an_input_may_be_given():
    fn, params = loaded(
        "net (float[2] x, int64[1] s) => (float[m] y) <int64[1] s = {1}, int64[1] e = {2}>"
        "{ y = Slice (x, s, e) }"
    )
    assert [p.name for p in fn.inputs] == ["x"]
    assert fn(params, np.array([3, 4], np.float32)).tolist() == [4]


def test_integers_follow_x64():
    fn, params = loaded(
        "net (float[n] x) => (int64[n] y) <int64 big = {9223372036854775807}>"
        "{ i = Cast <to: int = 7> (x) y = Min (i, big) }"
    )
    x = np.array([5.0], np.float32)
    assert fn(params, x).dtype == jnp.int32
    with lumjax.enable_x64(True):
        assert fn(params, x).dtype == jnp.int64
        assert fn(params, x).tolist() == [5]


# ---- refusals


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.ones((2, 5), np.float32), r"float32\[n, 4\].*\(2, 5\)"),
        (np.ones((4,), np.float32), r"float32\[n, 4\].*\(4,\)"),
        (np.ones((2, 4), np.int32), r"float32\[n, 4\].*int32"),
    ],
)
def test_inputs_that_do_not_fit(x, said):
    fn, params = lumjax.onnx.load(model("dense"))
    with pytest.raises(lumjax.onnx.OnnxError, match=said):
        fn(params, x)


def test_one_symbol_is_one_size():
    fn, params = loaded("net (float[n] x, float[n] y) => (float[n] z) { z = Add (x, y) }")
    with pytest.raises(lumjax.onnx.OnnxError, match=r"y: float32\[n\].*\{'n': 2\}"):
        fn(params, np.ones(2, np.float32), np.ones(1, np.float32))


@pytest.mark.parametrize(("inputs", "named"), [((), {}), ((1, 2), {}), ((), {"z": 1})])
def test_inputs_that_are_missing_or_too_many(inputs, named):
    fn, params = lumjax.onnx.load(model("dense"))
    with pytest.raises(lumjax.onnx.OnnxError, match="inputs x: float32"):
        fn(params, *inputs, **named)


def refused(text, head=HEAD):
    with pytest.raises(lumjax.onnx.OnnxError) as found:
        lumjax.onnx.load(onnx.parser.parse_model(f"{head} {text}"))
    return found.value


def test_an_operator_that_is_not_offered():
    error = refused(
        "net (uint8[n] x) => (uint8[h, w, c] y) { [decode] y = ImageDecoder (x) }",
        '<ir_version: 8, opset_import: ["": 20]>',
    )
    assert isinstance(error, lumjax.onnx.UnsupportedOnnxError)
    assert isinstance(error, NotImplementedError)
    assert "ImageDecoder (node 'decode')" in str(error)
    assert "opset 20" in error.got


def test_a_domain_that_nobody_defines():
    error = refused(
        "net (float[n] x) => (float[n] y) { y = mine.Magic (x) }",
        '<ir_version: 8, opset_import: ["": 17, "mine": 1]>',
    )
    assert "Magic of the domain 'mine'" in str(error)


def test_an_opset_that_is_newer():
    error = refused(
        "net (float[n] x) => (float[n] y) { y = Abs (x) }",
        '<ir_version: 8, opset_import: ["": 99]>',
    )
    assert error.got == "99"
    assert "version_converter" in str(error)


def test_an_attribute_of_another_opset():
    error = refused("net (float[n] x) => (float[n] y) { y = Abs <slope: int = 1> (x) }")
    assert "attribute 'slope'" in error.got


def test_an_attribute_of_the_wrong_type():
    fn, params = loaded("net (float[n] x) => (float[n] y) { y = Softmax <axis: float = 1.5> (x) }")
    with pytest.raises(lumjax.onnx.OnnxError, match="axis to be a whole number"):
        fn(params, rows(3))


def test_an_initialiser_that_claims_more_than_it_has():
    proto = model("dense")
    proto.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]
    with pytest.raises(lumjax.onnx.OnnxError, match=r"for .*1099511627776"):
        lumjax.onnx.load(proto.SerializeToString())


def test_a_size_that_is_too_large_is_not_allocated():
    fn, params = loaded("net (int64[2] s) => (float[a, b] y) { y = ConstantOfShape (s) }")
    with pytest.raises(lumjax.onnx.OnnxError, match="max_bytes"):
        fn(params, np.array([1 << 30, 1 << 30]))


@pytest.mark.parametrize("doubling", ["Concat <axis: int = 0> (x{0}, x{0})", "Tile (x{0}, two)"])
def test_a_value_that_doubles_again_and_again_is_stopped(doubling):
    nodes = " ".join(f"x{k + 1} = {doubling.format(k)}" for k in range(40))
    text = f"net (float[n] x0) => (float[m] x40) <int64[1] two = {{2}}> {{ {nodes} }}"
    fn, params = loaded(text, max_bytes=1 << 20)
    with pytest.raises(lumjax.onnx.OnnxError, match="at most 1048576 bytes"):
        fn(params, rows(8))


def test_a_function_that_calls_itself():
    text = """<ir_version: 8, opset_import: ["": 17, "mine": 1]> net (float[n] x) => (float[n] y)
        { y = mine.again (x) }
        <domain: "mine", opset_import: ["": 17, "mine": 1]> again (a) => (b)
        { b = mine.again (a) }"""
    fn, params = lumjax.onnx.load(onnx.parser.parse_model(text))
    with pytest.raises(lumjax.onnx.OnnxError, match="deep"):
        fn(params, rows(3))


def test_functions_that_double_again_and_again_are_stopped():
    bodies = "".join(
        f'<domain: "mine", opset_import: ["": 17, "mine": 1]> f{k} (a) => (b)'
        f"{{ c = mine.f{k + 1} (a) b = mine.f{k + 1} (c) }}"
        for k in range(30)
    )
    text = f"""<ir_version: 8, opset_import: ["": 17, "mine": 1]> net (float[n] x) => (float[n] y)
        {{ y = mine.f0 (x) }} {bodies}
        <domain: "mine", opset_import: ["": 17]> f30 (a) => (b) {{ b = Neg (a) }}"""
    fn, params = lumjax.onnx.load(onnx.parser.parse_model(text), max_trips=500)
    with pytest.raises(lumjax.onnx.OnnxError, match=r"at most 500 .*calls of functions"):
        fn(params, rows(3))


def test_an_error_inside_names_the_node():
    fn, params = loaded(
        "net (float[n] x, float[m] y) => (float[k] z) { [sum] z = Add (x, y) }",
    )
    with pytest.raises(lumjax.onnx.OnnxError, match=r"Add \(node 'sum'\).*broadcast"):
        fn(params, rows(2), rows(3))


def test_what_must_be_known_names_the_node_and_the_input():
    fn, params = loaded("net (float[n] x, int64[k] s) => (float[a, b] y) { y = Reshape (x, s) }")
    assert fn(params, rows(6), np.array([2, 3])).shape == (2, 3)
    with pytest.raises(ConcretizationError, match=r"Reshape .*input 1 \('s'\)"):
        lumjax.jit(fn)(params, rows(6), np.array([2, 3]))
    inside = lumjax.jit(lambda x: fn(params, x, np.array([2, 3])))  # known: not an argument
    assert inside(rows(6)).shape == (2, 3)


# ---- external data


def stored(folder):
    array = rows(32, 32)
    tensor = numpy_helper.from_array(array, "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])],
        [tensor],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(exist_ok=True)
    onnx.save(
        proto, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    return array, folder / "m.onnx"


def test_external_data_beside_the_model(tmp_path):
    array, path = stored(tmp_path / "a")
    fn, params = lumjax.onnx.load(path)
    x = rows(2, 32)
    assert np.allclose(fn(params, x), x @ array, atol=1e-4)


def test_external_data_of_bytes_alone(tmp_path):
    _, path = stored(tmp_path / "a")
    with pytest.raises(lumjax.onnx.OnnxError, match="Pass the path"):
        lumjax.onnx.load(path.read_bytes())


@pytest.mark.parametrize("place", ["../b/secret.bin", "link.bin", "", ".", "missing.bin"])
def test_external_data_elsewhere_is_not_read(tmp_path, place):
    _, path = stored(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "secret.bin").write_bytes(b"\0" * 4096)
    (tmp_path / "a" / "link.bin").symlink_to(tmp_path / "b" / "secret.bin")
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = place
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(lumjax.onnx.OnnxError, match="inside the model's folder"):
        lumjax.onnx.load(path)


def test_external_data_that_is_cut_off(tmp_path):
    _, path = stored(tmp_path / "a")
    (tmp_path / "a" / "w.bin").write_bytes(b"\0" * 100)
    with pytest.raises(lumjax.onnx.OnnxError, match="4096 bytes of external data"):
        lumjax.onnx.load(path)


# ---- the package


def test_lumjax_does_without_the_onnx_package():
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "onnx":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import lumjax, lumjax.numpy
try:
    import lumjax.onnx
except ImportError as error:
    assert "pip install 'lumjax[onnx]'" in str(error), error
else:
    raise SystemExit("imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- operators where the suite has no case


@pytest.mark.parametrize(
    ("start", "end", "step", "want"),
    [
        (-9, 9, -1, []),  # held to the first, and it ends behind
        (-9, -9, -1, [0]),
        (9, -9, -1, [3, 2, 1, 0]),
        (9, -9, -3, [3, 0]),
        (-9, 9, 2, [0, 2]),
        (2, 1, 1, []),
        (-1, 0, -1, [3, 2, 1]),
    ],
)
def test_slices_are_held_to_the_axis_in_either_direction(start, end, step, want):
    fn, params = loaded(
        "net (float[n] x, int64[1] a, int64[1] b, int64[1] s) => (float[m] y) <int64[1] k = {0}>"
        "{ y = Slice (x, a, b, k, s) }"
    )
    x = np.arange(4, dtype=np.float32)
    assert fn(params, x, *(np.array([v]) for v in (start, end, step))).tolist() == want


def test_cubic_samples_beyond_the_border_repeat_it():
    fn, params = loaded(
        "net (float[1, 1, 1, 4] x, float[1, 1, n, 2] g) => (float[1, 1, 1, n] y)"
        '{ y = GridSample <mode: string = "bicubic", padding_mode: string = "border",'
        " align_corners: int = 1> (x, g) }"
    )
    x = np.array([0, 1, 5, 2], np.float32).reshape(1, 1, 1, 4)
    grid = np.array([[1.2, 0.0], [-1.2, 0.0]], np.float32).reshape(1, 1, 2, 2)

    def cubic(values, t):
        a = -0.75
        near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
        far = [((d - 5) * d + 8) * d * a - 4 * a for d in (1 + t, 2 - t)]
        return np.dot([far[0], near[0], near[1], far[1]], values)

    want = [cubic([5, 2, 2, 2], 0.3), cubic([0, 0, 0, 1], 0.7)]
    assert np.allclose(np.ravel(fn(params, x, grid)), want, atol=1e-4)


def test_one_pixel_is_the_first_for_pytorch():
    fn, params = lumjax.onnx.load(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 19]> net (float[1, 1, 4] x) => (float[1, 1, n] y)'
            '<int64[3] s = {1, 1, 1}> { y = Resize <mode: string = "linear",'
            ' coordinate_transformation_mode: string = "pytorch_half_pixel"> (x, , , s) }'
        )
    )
    assert np.ravel(fn(params, np.array([[[3, 1, 1, 1]]], np.float32))).tolist() == [3]


def test_a_window_ends_where_the_attention_ends():
    fn, params = lumjax.onnx.load(
        onnx.parser.parse_model(
            '<ir_version: 11, opset_import: ["": 25]>'
            "net (float[1, 1, 3, 1] q, float[1, 1, 3, 1] k, float[1, 1, 3, 1] v)"
            " => (float[1, 1, 3, 1] y)"
            "{ y = Attention <is_causal: int = 1, left_window_size: int = 0> (q, k, v) }"
        )
    )
    q, v = rows(1, 1, 3, 1), np.array([1, 2, 3], np.float32).reshape(1, 1, 3, 1)
    assert np.allclose(fn(params, q, q, v), v)

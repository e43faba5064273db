"""What plans need in memory: estimates are what kernels take, and nothing grows with the square."""

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from benchmarks import programs
from lumjax.config import config
from lumjax.egraph.encode import encode
from lumjax.egraph.inline import inlined
from lumjax.egraph.layout import Layout
from lumjax.egraph.materialise import arrange, excess, peak, room
from lumjax.egraph.scalar import Operations
from lumjax.egraph.search import lower_for, search
from lumjax.egraph.stores import check, in_steps, store_forced
from lumjax.kernel.blocked import rounds
from lumjax.kernel.resident import Product
from lumjax.kernel.skip import decide
from lumjax.kernel.term import loads, subterms
from lumjax.trace.dim import evaluate, symbol
from tests.egraph.planning import MACHINE, TARGET, offered, regions


@pytest.fixture(autouse=True)
def no_cache():
    with config.scope(cache=False):
        yield


def aval(*shape, dtype=np.float32):
    return lumjax.ShapeDtypeStruct(shape, dtype)


def plans(f, *args):
    """The chosen grouping of every region, before kernels are made."""
    found = []
    for region in regions(f, *args):
        extraction, chooser = offered(region)
        found.append(chooser.best(chooser.traced(), extraction)[0])
    return found


def buffers(planned):
    return [r.buffer for p in planned for members in p.groups for r in members]


def largest(planned):
    """The elements of the largest value that is stored, results included."""
    return max(int(np.prod(b.shape)) for b in buffers(planned))


def attention(time, width, heads=2):
    return programs._attention(lambda s, i, j: s), [aval(heads, time, width)] * 3


def backward(time, width, heads=2):
    f, args = attention(time, width, heads)
    return weighed(f), [*args, args[0]]


def weighed(f):
    """The gradients by all three arguments, for a cotangent that comes first."""

    def gradients(weight, *args):
        return lumjax.grad(lambda *a: jnp.sum(f(*a) * weight), (0, 1, 2))(*args)

    return gradients


SIZES = [(512, 32), (512, 64), (512, 128), (512, 256), (1024, 256), (4096, 64), (16384, 256)]


@pytest.mark.parametrize(("time", "width"), SIZES)
@pytest.mark.sampled(3)
def test_rows_of_attention_are_never_stored(time, width):
    f, args = attention(time, width)
    planned = plans(f, *args)
    assert [len(p.groups) for p in planned] == [1]
    assert peak(planned[0].layout, planned[0].groups) <= 3 * 4 * 2 * time * width


@pytest.mark.parametrize(("time", "width"), SIZES)
@pytest.mark.sampled(2)
def test_gradients_of_attention_store_no_rows(time, width):
    f, args = backward(time, width)
    planned = plans(f, *args)
    assert sum(len(p.groups) for p in planned) <= 4
    assert largest(planned) < 2 * time * time
    assert max(peak(p.layout, p.groups) for p in planned) <= 6 * 4 * 2 * time * width


LEAST = float(np.finfo(np.float32).min)
SCORES = {
    "plain": lambda s, i, j: s,
    "causal": lambda s, i, j: jnp.where(i >= j, s, -jnp.inf),
    "causal, finfo.min": lambda s, i, j: jnp.where(i >= j, s, LEAST),
    "causal, additive": lambda s, i, j: s + jnp.where(i >= j, 0.0, -1e9),
    "window": lambda s, i, j: jnp.where((i >= j) & (i - j < 64), s, -jnp.inf),
    "alibi": lambda s, i, j: s - 0.25 * jnp.abs(i - j),
    "soft cap": lambda s, i, j: 30.0 * jnp.tanh(s / 30.0),
}


@pytest.mark.parametrize("width", [32, 64, 128, 256])
@pytest.mark.parametrize("longer", [2, 3, 8])
@pytest.mark.parametrize("shared", [1, 4], ids=["heads", "grouped"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.sampled(112)
def test_no_mask_or_grouping_stores_rows(score, shared, longer, width):
    """From rows twice as long as heads are wide, forward and backward."""
    time, heads = longer * width, 4
    rows = programs._attention(SCORES[score])

    def f(q, k, v):
        return rows(q, *(jnp.repeat(a, shared, axis=0) for a in (k, v)))

    q, k = aval(heads, time, width), aval(heads // shared, time, width)
    forward, back = plans(f, q, k, k), plans(weighed(f), q, q, k, k)
    assert [len(p.groups) for p in forward] == [1]
    assert sum(len(p.groups) for p in back) <= 4
    assert max(map(largest, (forward, back))) < heads * time * time


SHORT = [(33, 64), (31, 32), (32, 128), (61, 256), (64, 64), (67, 32), (101, 64), (128, 128)]
SHORT += [(199, 128)]


@pytest.mark.parametrize(("time", "width"), SHORT)
@pytest.mark.parametrize("shared", [1, 4], ids=["heads", "grouped"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.sampled(8)
def test_short_rows_are_held_by_one_job(score, shared, time, width):
    """Rows shorter than twice the width of heads: nothing of theirs is stored, and each product is
    computed once in the backward pass.
    """
    rows, batches, heads = programs._attention(SCORES[score]), 2, 4

    def f(q, k, v):
        q = q.reshape(batches * heads, time, width)
        k, v = (jnp.repeat(a, shared, axis=1).reshape(batches * heads, time, width) for a in (k, v))
        return rows(q, k, v)

    q, k = aval(batches, heads, time, width), aval(batches, heads // shared, time, width)
    ct = aval(batches * heads, time, width)
    back = plans(weighed(f), ct, q, k, k)
    assert sum(len(p.groups) for p in back) <= 4
    both = plans(lumjax.value_and_grad(lambda *a: jnp.sum(f(*a) ** 2), (0, 1, 2)), q, k, k)
    assert sum(len(p.groups) for p in both) <= 4
    if time % 2:  # of the prime lengths no value but rows by keys has the square in it
        assert all(np.prod(b.shape) % time**2 for b in buffers([*back, *both]))


@pytest.mark.parametrize("time", [64, 100, 128])
@pytest.mark.parametrize("parts", [1, 3], ids=["apart", "together"])
def test_a_layer_computes_short_rows_twice(time, parts):
    """Forward and backward: also where queries, keys and values are pieces of one projection."""
    batches, heads, width = 2, 4, 32
    rows = programs._attention(SCORES["causal"])

    def f(*x):
        if parts == 3:
            x = jnp.transpose(x[0].reshape(batches, time, 3, heads, width), (2, 0, 3, 1, 4))
        return rows(*(a.reshape(batches * heads, time, width) for a in x))

    apart = [aval(batches, heads, time, width)] * 3
    args = [aval(batches, time, 3 * heads * width)] if parts == 3 else apart
    loss = lumjax.value_and_grad(lambda *a: jnp.sum(f(*a) ** 2), tuple(range(len(args))))
    planned = plans(loss, *args)
    assert sum(len(p.groups) for p in planned) <= 4 + (parts == 3)
    jobs = [check(p.layout, m).stays(p.layout.fold) for p in planned for m in p.groups]
    steps = [s for job in jobs if job is not None for s in (*job.before, *job.body)]
    assert len([s for s in steps if isinstance(s, Product)]) >= 5


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.sampled(2)
def test_masks_too_large_to_be_computed_store_no_rows(score):
    """While tracing the gradient it must be seen that no row is masked as a whole."""
    time = 16384
    rows, x = programs._attention(SCORES[score]), aval(2, time, 64)
    back = plans(weighed(rows), x, x, x, x)
    assert sum(len(p.groups) for p in back) <= 4
    assert largest(back) < 2 * time * time


@pytest.mark.parametrize(
    ("score", "time", "back"),
    [
        ("causal", 8192, False),
        ("causal, finfo.min", 8192, False),
        ("causal, additive", 8192, False),
        ("causal", 8192, True),
    ],
)
def test_causal_rows_multiply_little_more_than_half(score, time, back):
    """Every loop over tiles is idle where the mask keeps nothing."""
    height, width = 64, 128
    f, args = programs._attention(SCORES[score]), [aval(2, time, 64)] * 3
    g = weighed(f) if back else f
    (planned,) = plans(g, *args[:back], *args)
    kinds = [check(planned.layout, m).kernel(planned.layout.fold)[2] for m in planned.groups]
    assert len(kinds) <= (4 if back else 1)
    loops = [roles for roles in kinds if roles is not None]
    assert len(loops) == (3 if back else 1)
    for roles in loops:
        first, last = (symbol(n) for n in ("first", "last"))
        begin, end = (symbol(n) for n in ("begin", "end"))
        idle = decide(roles).idle({roles.rows.name: (first, last), roles.along.name: (begin, end)})
        i, j = np.meshgrid(np.arange(0, time, height), np.arange(0, time, width))
        places = {"first": i, "last": i + height - 1, "begin": j, "end": j + width - 1}
        assert 0.4 <= 1 - np.mean(evaluate(idle, places)) <= 0.6


def materialised(region):
    """The grouping of the traced program that stores whatever a loop over tiles would hold."""
    encoded = inlined(encode(region, Operations(region)))
    layout = Layout(encoded.roots, encoded.layout)
    layout.room = room(encoded.roots)
    store_forced(layout)
    return arrange(layout, MACHINE)


def classifier(rows, width, classes):
    def f(x, w, labels):
        loss = lambda x, w: programs.label_loss(x @ w, labels)
        return lumjax.value_and_grad(loss, (0, 1))(x, w)

    return f, [aval(rows, width), aval(width, classes), aval(rows, dtype=np.int32)]


@pytest.mark.parametrize("width", [64, 256, 768, 1024])
@pytest.mark.parametrize("rows", [512, 2048, 8192])
@pytest.mark.sampled(3)
def test_many_classes_store_no_logits(width, rows):
    classes = 50304
    f, args = classifier(rows, width, classes)
    planned = plans(f, *args)
    assert largest(planned) == width * classes  # the weights' gradient
    (region,) = regions(f, *args)
    plain = materialised(region)
    (chosen,) = planned
    assert peak(chosen.layout, chosen.groups) <= 0.4 * peak(plain.layout, plain.groups)


@pytest.mark.parametrize("rows", [512, 2048])
def test_gradients_by_many_classes_contract_three_times(rows):
    """The logits of a block of rows serve the loss and both gradients, in one kernel."""
    f, args = classifier(rows, 256, 50304)
    (chosen,) = plans(f, *args)
    (members,) = chosen.groups
    blocks = check(chosen.layout, members).blocks(chosen.layout.fold)
    assert blocks is not None
    assert len(blocks.pairs) == 3
    assert peak(chosen.layout, chosen.groups) <= 1.01 * 4 * 50304 * rows / rounds(rows)


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda a, b: a.T @ jnp.exp(b), (aval(8192, 64), aval(8192, 96))),
        attention(512, 64),
        attention(512, 256),
        backward(512, 64),
        classifier(512, 512, 20000),
        (
            lambda x, w: lumjax.lax.conv_general_dilated(x, w, (1, 1), "SAME"),
            (aval(4, 32, 32, 32), aval(64, 32, 3, 3)),
        ),
    ],
    ids=[
        "long",
        "rows",
        "wide rows",
        "gradients",
        "classes",
        "windows",
    ],
)
@pytest.mark.sampled(3)
def test_kernels_take_the_memory_that_plans_count(f, args):
    """Short rows, which stay with a job, take none."""
    expected, taken = memory(f, args)
    assert taken
    assert 0.6 * taken <= expected <= 1.5 * taken


def memory(f, args):
    """The bytes that kernels need for themselves: as plans count them, and as they are."""
    lower = lower_for(TARGET)
    expected = taken = 0
    for region in regions(f, *args):
        extraction, chooser = offered(region)
        planned = chooser.best(chooser.traced(), extraction)[0]
        for members, group in zip(planned.groups, planned.finished(), strict=True):
            expected += check(planned.layout, members).workspace(planned.layout.fold)
            kernel = lower(group)
            sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
            taken += sum(
                int(evaluate(b.shape[0], sizes)) * b.dtype.itemsize for b in kernel.workspace
            )
    return expected, taken


@pytest.mark.parametrize("n", [256, 1024])
def test_products_of_matrices_copy_nothing(n):
    """They read both sides where they lie."""
    for product in (jnp.matmul, lambda a, b: a @ b.T, lambda a, b: a.T @ b):
        assert memory(product, (aval(n, n), aval(n, n))) == (0, 0)


def test_kernels_that_run_at_once_need_their_memory_at_once():
    f, args = backward(512, 64)
    (planned,) = plans(f, *args)
    statistics, *gradients = planned.groups
    assert len(gradients) == 2, "neither waits for the other"
    copies = [check(planned.layout, g).workspace(planned.layout.fold) for g in gradients]
    assert min(copies) > 0
    stored = sum(4 * int(np.prod(r.buffer.shape)) for r in statistics)
    assert peak(planned.layout, planned.groups) == stored + sum(copies)


def test_the_more_memory_the_dearer_each_byte():
    prices = [excess(n << 20, 4 << 20, MACHINE) for n in (2, 4, 8, 16)]
    assert prices[:2] == [0.0, 0.0]
    assert prices[3] > 3 * prices[2] > 0


def test_small_programs_may_use_a_few_mib_unless_something_is_too_large_for_what_it_is():
    (region,) = regions(lambda x: jnp.sum(x * x), aval(64, 64))
    roots = encode(region, Operations(region)).roots
    assert room(roots) == 4 << 20
    assert room(roots, large=True) == (64 * 64 + 1) * 4 // 4
    f, args = attention(512, 64)
    (rows,) = regions(f, *args)
    assert encode(rows, Operations(rows)).large
    assert search(rows, TARGET).plan.temporaries == ()


def few_rows(queries, keys, place):
    """Rows that weigh what lies along a stream, up to a place or all of it."""

    def f(q, k, v, last):
        s = q @ jnp.swapaxes(k, -1, -2) / np.float32(8)
        if place:
            s = jnp.where(jnp.arange(keys[-2]) <= last, s, -jnp.inf)
        return lumjax.nn.softmax(s, -1) @ v

    return f, [aval(*queries), aval(*keys), aval(*keys), aval(dtype=np.int32)]


@pytest.mark.parametrize("place", [False, True])
@pytest.mark.parametrize("time", [128, 512, 2048, 8192])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [((1, 64), ()), ((8, 1, 64), (8,)), ((2, 8, 1, 128), (2, 8)), ((8, 4, 64), (8,))],
    ids=["a row", "heads", "batches", "groups"],
)
@pytest.mark.sampled(8)
def test_few_rows_are_one_kernel_that_stores_nothing(queries, keys, time, place):
    check_few_rows(queries, keys, time, place)


@pytest.mark.parametrize("place", [False, True])
def test_nothing_is_stored_where_both_ways_have_nearly_one_price(place):
    check_few_rows((8, 4, 64), (8,), 8192, place)


def check_few_rows(queries, keys, time, place):
    f, args = few_rows(queries, (*keys, time, queries[-1]), place)
    planned = plans(f, *args)
    (only,) = planned
    assert [len(only.groups), peak(only.layout, only.groups)] == [1, 0]
    kernel = lower_for(TARGET)(only.finished()[0])
    assert kernel.programs in (("FOLD",), ("RESIDENT",))
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
    results = int(np.prod(queries))
    own = sum(int(evaluate(b.shape[0], sizes)) for b in kernel.workspace)
    assert own <= 2 * 16 * results


def normalised(x, scale):
    """Over the batch, for each feature."""
    mean = jnp.mean(x, 0)
    variance = jnp.mean((x - mean) ** 2, 0)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * scale


def test_statistics_of_many_columns_are_stored():
    """Features lie together: to walk the batch for one after the other would read in steps. All
    that follows reads its memory once, in order.
    """

    def f(x, scale):
        return jnp.mean(jnp.tanh(normalised(x, scale)) ** 2)

    for g in (f, lumjax.value_and_grad(f, (0, 1))):
        for planned in plans(g, aval(12544, 64), aval(64)):
            for members in planned.groups:
                found = check(planned.layout, members).found
                nested = {u for t in found for u in subterms(t.body) if u in found}
                read = [(u, {a.name for a in t.axes}) for t in nested for u in loads(t.body)]
                steps = [u for u, axes in read if in_steps(u, axes)]
                assert not steps or len({t.axes for t in found}) == 1  # vectors of features


def test_a_norm_behind_a_product_takes_it_once():
    """Its gradient sums over rows and along them, both of what one product gives."""

    def f(x, scale, bias, w, weight):
        mean = jnp.mean(x, -1, keepdims=True)
        variance = jnp.mean((x - mean) ** 2, -1, keepdims=True)
        y = (x - mean) / jnp.sqrt(variance + 1e-5) * scale + bias
        return jnp.sum((x + jnp.tanh(y @ w) @ w.T) * weight)

    x, w = aval(4, 256, 384), aval(384, 1536)
    args = x, aval(384), aval(384), w, x
    made = [search(r, TARGET) for r in regions(lumjax.grad(f, (0, 1, 2, 3)), *args)]
    programs_ = [k.programs for each in made for k in each.kernels]
    assert not any("FOLD" in p for p in programs_)
    assert (
        sum(p.count("CONTRACT") for p in programs_) == 5
    )  # forward, by activations 2, by weights 2
    stored = [t for each in made for t in each.plan.temporaries if len(t.shape) > 1]
    assert stored
    assert all(t.shape[-1] in {384, 1536} for t in stored)  # as what it is read with

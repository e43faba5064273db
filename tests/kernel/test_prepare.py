"""Groups in lowering's form: size symbols, offsets, merged axes, renamed binders."""

from __future__ import annotations

from lumjax.kernel.prepare import collapse, flatten, parametrise, prepare
from lumjax.kernel.rewrite import rename, separate
from lumjax.kernel.term import Load, Reduction, loads, subterms
from lumjax.trace import dim as dims
from tests.kernel.build import MAX, SUM, axis, buf, group, lit, load, op, reduce, root, sym


def test_equal_programs_at_other_sizes_have_one_form():
    def form(m, k):
        i, j = axis(f"i{m}", m), axis(f"j{k}", k)
        return parametrise(group(root("o", (i,), reduce(SUM, j, load("x", i, j)))))

    small, large = form(3, 4), form(30, 40)
    assert small.group == large.group
    assert (dict(small.sizes), dict(large.sizes)) == ({"n0": 3, "n1": 4}, {"n0": 30, "n1": 40})


def test_axes_of_one_dimension_share_a_size():
    i, j = axis("i", 5), axis("j", 5)
    product = op("mul", load("x", i), load("x", j))
    assert dict(parametrise(group(root("o", (i, j), product))).sizes) == {"n0": 5}


def test_extents_inside_coordinates_are_fixed():
    i, j = axis("i", 4), axis("j", 6)
    window = Load(buf("x", 5, 6), (sym(i) + 1, sym(j)))
    prepared = parametrise(group(root("o", (i, j), window)))
    assert dict(prepared.sizes) == {"n0": 6}
    assert prepared.group.roots[0].axes[0].extent == 4


def test_contiguous_axes_merge():
    i, j, k = axis("i", 2), axis("j", 3), axis("k", 4)
    x, row = load("x", i, j, k), load("row", k)
    whole = prepare(group(root("o", (i, j, k), op("neg", x)))).group.roots[0]
    assert len(whole.axes) == 1
    rows = prepare(group(root("o", (i, j, k), op("add", x, row)))).group.roots[0]
    assert len(rows.axes) == 2
    flipped = prepare(group(root("o", (k, i, j), x))).group.roots[0]
    assert len(flipped.axes) == 2
    summed = prepare(group(root("o", (k,), reduce(SUM, (i, j), x)))).group.roots[0]
    (total,) = (t for t in subterms(summed.term) if isinstance(t, Reduction))
    assert len(total.axes) == 1


def test_masks_keep_axes_apart():
    i, j = axis("i", 4), axis("j", 6)
    masked = Load(buf("x", 4, 6), (sym(i), sym(j)), dims.less(sym(j), 3), lit(0.0))
    assert len(prepare(group(root("o", (i, j), masked))).group.roots[0].axes) == 2


def test_axes_of_one_point_and_none_vanish():
    i, j, k = axis("i", 1), axis("j", 3), axis("k", 0)
    r = prepare(group(root("o", (i, j), load("x", i, j)))).group.roots[0]
    assert [a.extent for a in r.axes] == [dims.symbol("n0", 1)]
    empty = prepare(group(root("o", (j,), reduce(MAX, k, load("x", j, k)))))
    assert not list(loads(empty.group.roots[0].term))
    assert prepare(group(root("o", (k,), load("y", k)))).live() == ()


def test_rewritten_terms_know_their_origin():
    i, j = axis("i", 2), axis("j", 3)
    total = reduce(SUM, j, op("exp", load("x", i, j)))
    prepared = collapse(flatten(parametrise(group(root("o", (i,), op("neg", total))))))
    (new,) = (t for t in subterms(prepared.group.roots[0].term) if isinstance(t, Reduction))
    assert prepared.origin[new] is total


def test_renaming_reaches_binders_and_separating_does_not_touch_free_axes():
    i, k = axis("i", 2), axis("k", 3)
    x = load("x", i, k)
    term = op("div", x, reduce(SUM, k, op("mul", x, reduce(MAX, k, x))))
    apart = separate(term, frozenset("ik"))
    assert {a.name for t in subterms(apart) if isinstance(t, Reduction) for a in t.axes} == {"k'"}
    assert x in set(subterms(apart))
    renamed = rename(term, {k: axis("q", 3)})
    assert not any("k" in dims.symbols(*t.coords) for t in loads(renamed))


def test_merging_does_not_ask_which_object_an_axis_is():
    """Terms are interned: a reduction may hold the axes of a group that was prepared earlier."""

    def total(i, j):
        return reduce(SUM, (i, j), load("x", i, j))

    def axes():
        return axis("i", 5), axis("j", 7)

    before = flatten(parametrise(group(root("o", (), total(*axes())))))
    i, j = axes()
    rows = root("p", (i, j), load("y", i, j))
    after = prepare(group(root("o", (), total(i, j)), rows))
    extents = {len(r.axes) for r in after.group.roots}
    assert extents == {0, 1}
    assert before.group.roots

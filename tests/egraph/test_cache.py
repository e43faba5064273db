import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from lumjax.config import config
from lumjax.egraph import cache
from lumjax.egraph.cache import load_plan, plan_key, save_plan
from lumjax.egraph.plan import Budget, Plan
from lumjax.egraph.scalar import Operations
from lumjax.egraph.search import search
from lumjax.egraph.text import plan_from, plan_text
from lumjax.errors import CacheWarning
from lumjax.kernel.emit import Reject
from lumjax.kernel.lower import lower as real_lower
from lumjax.kernel.region import Region, cut
from lumjax.target import Backend, Target
from tests.egraph import programs as pr

TARGET = Target(Backend.CPU, "generic", "", 32, 16, 2)


@pytest.fixture
def directory(tmp_path):
    with config.scope(cache=True, cache_dir=str(tmp_path)):
        yield tmp_path


def region_of(name="softmax"):
    return next(s for s in cut(pr.BY_NAME[name].jaxpr()) if isinstance(s, Region))


def files(directory):
    return sorted(Path(directory).rglob("*.json"))


@pytest.mark.parametrize("program", pr.PROGRAMS, ids=lambda p: p.name)
def test_round_trip(program, directory):
    for region in cut(program.jaxpr()):
        if isinstance(region, Region):
            first = search(region, TARGET)
            again = search(region, TARGET)
            assert again.report.cached
            assert again.plan == first.plan
            assert again.kernels == first.kernels
            operations = Operations(region)
            text = json.loads(json.dumps(plan_text(first.plan, operations)))
            assert plan_from(text, operations) == first.plan


def test_nothing_is_kept_when_the_cache_is_off(directory):
    with config.scope(cache=False):
        search(region_of(), TARGET)
        assert not search(region_of(), TARGET).report.cached
    assert not files(directory)


def damage(kind, path, other):
    data = path.read_bytes()
    head, _, body = data.partition(b"\n")
    match kind:
        case "empty":
            path.write_bytes(b"")
        case "truncated":
            path.write_bytes(data[: len(data) // 2])
        case "flipped":
            path.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
        case "binary":
            path.write_bytes(os.urandom(300))
        case "foreign":
            path.write_bytes(other.read_bytes())
        case "version":
            path.write_bytes(head.replace(b" 2 ", b" 999 ") + b"\n" + body)
        case "json":
            path.write_bytes(b"{}")


@pytest.mark.parametrize(
    "kind", ["empty", "truncated", "flipped", "binary", "foreign", "version", "json"]
)
def test_bad_files_cost_one_warning_and_are_rewritten(kind, directory):
    plan = search(region_of(), TARGET).plan
    (path,) = files(directory)
    good = path.read_bytes()
    search(region_of("adam"), TARGET)
    (other,) = [f for f in files(directory) if f != path]
    damage(kind, path, other)
    with pytest.warns(CacheWarning) as caught:
        again = search(region_of(), TARGET)
    assert len(caught) == 1
    assert not again.report.cached
    assert again.plan == plan
    assert path.read_bytes() == good
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert search(region_of(), TARGET).report.cached


def with_terms(terms):
    rest = '"inputs": [], "outputs": [], "temporaries": [], "groups": [], "cost": "0x0p+0"'
    return f'{{"plan": {{{rest}, "terms": [{terms}], "truncated": false}}}}'


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "{}",
        '{"plan": {}}',
        '{"plan": 3}',
        with_terms('["apply", "nothing", [], "f32"]'),
        with_terms('["what"]'),
        with_terms('["load", ["b", [], "f32"], [], 1, ["index", 0, "f32", []], []]'),
    ],
)
def test_well_signed_nonsense_is_not_a_plan(body, directory):
    """A right checksum over something that is no plan: written by another version."""
    region = region_of()
    key = plan_key(region, TARGET, Budget(), False)
    cache._PLANS.write(key, body.encode())
    assert files(directory)
    with pytest.warns(CacheWarning):
        assert load_plan(key, Operations(region)) is None


def test_a_directory_that_cannot_be_written_costs_one_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    with config.scope(cache=True, cache_dir=str(blocked)), pytest.warns(CacheWarning) as caught:
        result = search(region_of(), TARGET)
    assert len(caught) == 1
    assert result.plan.groups


def test_key_depends_on_everything_that_matters():
    region, other = region_of(), region_of("adam")
    base = plan_key(region, TARGET, Budget(), False)
    cuda = Target(Backend.CUDA, "sm_90", "", 16, 255, 132)
    wide = Target(Backend.CPU, "generic", "", 64, 32, 2)
    others = [
        plan_key(other, TARGET, Budget(), False),
        plan_key(region, cuda, Budget(), False),
        plan_key(region, wide, Budget(), False),
        plan_key(region, TARGET, Budget(seed=1), False),
        plan_key(region, TARGET, Budget(terms=10), False),
        plan_key(region, TARGET, Budget(), True),
    ]
    assert len({base, *others}) == 7
    assert plan_key(region_of(), TARGET, Budget(), False) == base


def test_a_truncated_plan_has_a_key_of_its_own(directory):
    region = region_of()
    slow = search(region, TARGET, Budget(seconds=0.0))
    assert slow.plan.truncated
    key = plan_key(region, TARGET, Budget(seconds=0.0), False)
    assert [f.stem for f in files(directory)] != [key]
    operations = Operations(region)
    assert load_plan(key, operations) == slow.plan
    complete = Plan(*slow.plan.inputs and (slow.plan.inputs,), slow.plan.outputs, (), (), 1.0)
    save_plan(key, complete, operations)
    assert load_plan(key, operations) == complete


def test_two_processes_share_the_directory(directory):
    code = (
        "from tests.egraph import programs as pr\n"
        "from lumjax.egraph.search import search\n"
        "from lumjax.kernel.region import cut, Region\n"
        "from lumjax.target import Backend, Target\n"
        "t = Target(Backend.CPU, 'generic', '', 32, 16, 2)\n"
        "for name in ('softmax', 'adam', 'mlp-grad'):\n"
        "    for s in cut(pr.BY_NAME[name].jaxpr()):\n"
        "        if isinstance(s, Region): print(search(s, t).plan)\n"
    )
    root = str(Path(__file__).parents[2])
    environment = {"PYTHONPATH": root, "LUMJAX_CACHE_DIR": str(directory)}
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code],
            env={**environment, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    outputs = [p.communicate()[0] for p in running]
    assert [p.returncode for p in running] == [0, 0]
    assert outputs[0] == outputs[1]
    assert not list(Path(directory).rglob(".plan*"))


def test_a_stored_plan_that_no_longer_lowers_is_searched_again(directory):
    region = region_of("adam")
    first = search(region, TARGET)
    assert any(len(g.roots) > 1 for g in first.plan.groups)

    def lower(group):
        if len(group.roots) > 1:
            return Reject(group.roots[0].term, "one root only")
        return real_lower(group, TARGET)

    again = search(region, TARGET, lower=lower)
    assert not again.report.cached
    assert all(len(g.roots) == 1 for g in again.plan.groups)
    assert search(region, TARGET, lower=lower).plan == again.plan


def test_another_version_of_the_planner_has_other_keys(monkeypatch):
    region = region_of()
    key = plan_key(region, TARGET, Budget(), False)
    monkeypatch.setattr(cache, "planner_version", lambda: "another")
    assert plan_key(region, TARGET, Budget(), False) != key


def test_scalars_keep_their_bits(directory):
    def f(x):
        return pr.ew.mul(x, np.float32(-0.0))

    (region,) = [s for s in cut(pr.Program("", f, (pr.aval(3),)).jaxpr()) if isinstance(s, Region)]
    search(region, TARGET)
    plan = search(region, TARGET).plan
    (got,) = pr.evaluate_plan(plan, [np.ones(3, np.float32)])
    assert np.signbit(got).all()

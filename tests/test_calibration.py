"""The constants of the cost model: measured, kept, and used only where measuring was asked for."""

import dataclasses

import pytest

from lumjax.calibration import Calibration, calibrated
from lumjax.config import config
from lumjax.cpu.objects import host_target
from lumjax.egraph.cache import plan_key
from lumjax.egraph.machine import MACHINES, load_machine, machine, save_machine
from lumjax.egraph.plan import Budget
from lumjax.errors import CacheWarning
from lumjax.kernel.region import Region, cut
from tests.egraph.programs import BY_NAME

FLOATS = [n for n in MACHINES[host_target().backend].__match_args__ if n != "levels"]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.scope(cache=True, cache_dir=str(tmp_path)):
        yield tmp_path


def test_what_is_measured_is_kept():
    ticks = iter(range(1, 1 << 20))

    def clock(run, times):
        run()
        return 1e-6 * (1 + next(ticks) % 7)

    found = Calibration(host_target(), clock).machine()
    assert all(getattr(found, n) > 0 for n in FLOATS)
    assert [size for size, _ in found.levels] == [host_target().l2, host_target().l3]
    assert load_machine(host_target()) is None
    save_machine(host_target(), found)
    assert load_machine(host_target()) == found
    assert calibrated(host_target()) == found


def test_plans_follow_the_reference_unless_measuring_was_asked_for():
    target = host_target()
    mine = dataclasses.replace(machine(target), product=1.0)
    (region, *_) = [s for s in cut(BY_NAME["softmax"].jaxpr()) if isinstance(s, Region)]
    keys = [plan_key(region, target, Budget(profile=p), False) for p in (False, True)]
    save_machine(target, mine)
    assert machine(target) == MACHINES[target.backend]
    assert machine(target, measured=True) == mine
    again = [plan_key(region, target, Budget(profile=p), False) for p in (False, True)]
    assert keys[0] == again[0]
    assert keys[1] != again[1]


def test_an_unreadable_calibration_is_none(folder):
    save_machine(host_target(), machine(host_target()))
    (path,) = (folder / "machines").rglob("*.json")
    path.write_bytes(b"nothing")
    with pytest.warns(CacheWarning):
        assert load_machine(host_target()) is None

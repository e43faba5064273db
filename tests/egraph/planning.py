"""Programs written in jnp as regions, and their equal programs, for tests of the planner."""

import time

import lumjax
from lumjax.egraph.choose import Chooser
from lumjax.egraph.cost import machine
from lumjax.egraph.encode import encode
from lumjax.egraph.inline import inlined
from lumjax.egraph.materialise import Meter
from lumjax.egraph.plan import Budget
from lumjax.egraph.scalar import Operations
from lumjax.egraph.search import _Search
from lumjax.expansion import expand
from lumjax.kernel.region import Region, cut
from lumjax.target import Backend, Target
from lumjax.trace.simplify import simplify

TARGET = Target(Backend.CPU, "generic", "", 32, 16, 2)
MACHINE = machine(TARGET)


def regions(f, *args):
    """The regions of a program, in order."""
    jaxpr, _ = expand(simplify(lumjax.jit(f).program(*args).jaxpr))
    return [s for s in cut(simplify(jaxpr)) if isinstance(s, Region)]


def largest(f, *args):
    """The region with the most equations."""
    return max(regions(f, *args), key=lambda r: len(r.eqns))


def offered(region, budget=Budget()):
    """The region's programs (None if there is but one), and what prices them."""
    search = _Search(region, TARGET, budget, Operations(region))
    encoded = inlined(encode(region, search.operations))
    extraction, _ = search._saturated(encoded)
    meter = Meter(budget.evaluations, time.thread_time() + 600)
    return extraction, Chooser(encoded, MACHINE, budget, meter)

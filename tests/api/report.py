"""The table of docs/api.md: one line a name, `same` or how it differs."""

from __future__ import annotations

import inspect
from collections import Counter
from functools import cache

import lumjax
from tests.api.names import MISSING, NAMES, REASONS, Name
from tests.api.oracle import oracle
from tests.api.signatures import find, parameters, unlike
from tests.api.table import cases

MODULES = (
    "jax", "jnp", "jnp.linalg", "jnp.fft", "jax.lax", "jax.lax.linalg", "jax.nn",
    "jax.nn.initializers", "jax.random", "jax.tree", "jax.tree_util", "jax.scipy.special",
    "jax.scipy.linalg", "jax.scipy.fft", "jax.scipy.stats.norm",
    "jax.scipy.ndimage", "jax.scipy.sparse.linalg", "jax.image", "jax.ops",
    "jax.debug", "jax.profiler", "jax.sharding", "jax.dtypes", "jax.flatten_util",
    "jax.custom_derivatives", "jax.ad_checkpoint", "jax.checkpoint_policies", "jax.monitoring",
    "jax.distributed", "jax.dlpack",
)  # fmt: skip

HEAD = """\
# The names of JAX

Each name that real code uses, by how much it is used: the first 360 of a count over 22 public
repositories, the names for several devices, the rest of the count, and last every other public
function whose signature differs. `same` means: held to JAX by the cases of `tests/api` (values,
dtypes, weak types, shapes, errors, gradients; operands without elements or axes among them), and
callable by the same keywords in the same order; `same parameters`: only the latter here, other
tests compare the values. Differences are by design; a case proves each.
Written by `scripts/api_table.py`.
"""
TITLES = {
    "core": "The first 360",
    "stub": "For several devices",
    "more": "The rest of the count",
}


@cache
def public() -> tuple[str, ...]:
    """Every public function that both libraries have, beyond the list of names."""
    listed = {n.name for n in NAMES}
    found: list[str] = []
    for module in MODULES:
        home = find(lumjax, module)
        for name in dir(home):
            value = getattr(home, name)
            mine = str(getattr(value, "__module__", "")).startswith("lumjax")
            if name.startswith("_") or not callable(value) or inspect.isclass(value) or not mine:
                continue
            if f"{module}.{name}" not in listed:
                found.append(f"{module}.{name}")
    return tuple(found)


def reason(name: str, parameter: str) -> str:
    """Why a parameter of JAX's is not taken; KeyError if nobody has said."""
    return REASONS.get(f"{name}:{parameter}") or REASONS[parameter]


@cache
def theirs(name: str) -> list[tuple[str, str]] | None:
    """JAX's parameters."""
    return oracle().ask("parameters", name)


def parameter_differences(name: str) -> list[str]:
    """What a caller cannot name here, with the reason."""
    absent = unlike(parameters(lumjax, name), theirs(name))
    reasons: dict[str, list[str]] = {}
    for p in absent:
        reasons.setdefault(reason(name, p), []).append(f"`{p}`")
    return [f"without {', '.join(ps)} ({why})" for why, ps in reasons.items()]


def differences(name: str) -> list[str]:
    """All that is known to differ."""
    proven = dict.fromkeys(c.differs for c in cases() if c.name == name and c.differs)
    return [*proven, *parameter_differences(name)]


def row(name: Name, counts: Counter[str]) -> str:
    """One line of the table."""
    tested = counts[name.name] or ""
    if name.name in MISSING:
        return f"| `{name.name}` | not offered: {MISSING[name.name]} | |"
    found = "; ".join(differences(name.name))
    same = "same" if tested else "same parameters"
    return f"| `{name.name}` | {'differs: ' + found if found else same} | {tested} |"


def text() -> str:
    """The page."""
    counts = Counter(c.name for c in cases())
    lines = [HEAD]
    for group, title in TITLES.items():
        rows = [row(n, counts) for n in NAMES if n.group == group]
        lines += [f"## {title}", "", "| name | | cases |", "|---|---|---|", *rows, ""]
    others = [(n, "; ".join(parameter_differences(n))) for n in public()]
    rows = [f"| `{n}` | differs: {found} |" for n, found in others if found]
    lines += ["## Other functions whose signature differs", "", "| name | |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"

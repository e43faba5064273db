"""Settings: process-wide defaults read from `LUMJAX_*` variables, and thread-local scopes on top of
them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from lumjax.errors import ArgumentTypeError, ArgumentValueError
from lumjax.record import record


def _default_cache_dir() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "lumjax")


@record
class Settings:
    """One consistent set of settings."""

    enable_x64: bool = False  # 64-bit dtypes are kept rather than narrowed
    fast_math: bool = False  # allow rewrites that hold only over part of the reals
    default_matmul_precision: str = ""  # of float32 products that say nothing; "": float32
    grad_compat: str = "lumjax"  # "jax" restores JAX's NaN gradients
    backend: str = "cpu"  # where programs run
    cuda_library_gemm: bool = False  # cuBLAS is one more candidate for plain products on a GPU
    interpret: bool = False  # jit evaluates every primitive by itself, without compiling
    cache: bool = True  # keep plans and objects on disk
    cache_dir: str = ""  # where
    num_threads: int = 0  # 0: as many as the process may use
    compile_workers: int = 0  # processes that compile a large program; 0: as pays; 1: this one
    cpu: str = ""  # override of the detected CPU name and features, "name:+f1,-f2"
    verify: bool = True  # check every new kernel against the interpreter before it is used
    seed: int = 0  # of the search
    search_evaluations: int = 2000  # budget of the planner, per region; 0: plan as traced
    search_terms: int = 20000  # e-graph size at which saturation stops
    search_seconds: float = 10.0  # of processor time: abort, per region; the plan is truncated
    search_profile: bool = False  # choose among kernels and plans by measuring them
    search_background: bool = False  # run unsearched plans; search for the next process
    search_memory: int = 0  # bytes a program may hold between kernels; 0: no bound
    debug_nans: bool = False  # raise where a NaN comes up: primitive, line, operands, pass
    debug_infs: bool = False  # the same for infinities
    debug_index: bool = False  # raise for traced indices out of range, under jit too
    debug_overflow: bool = False  # raise where signed integers wrap or a cast loses the value
    debug_key_reuse: bool = False  # raise where a random key is used twice
    debug_side_effects: bool = False  # warn of functions that rebind outer names while traced
    warn_narrowing: bool = True  # warn once of float64 input that is rounded to float32
    check_tracer_leaks: bool = False  # look for tracers kept beyond their transformation
    log_compiles: bool = False  # log what is traced and compiled, and for how long
    explain_cache_misses: bool = False  # log why a jitted function is traced again


_SEARCH = (
    "seed",
    "verify",
    *(f.name for f in fields(Settings) if f.name.startswith("search_")),
)
_SEMANTIC = ("enable_x64", "fast_math", "grad_compat", "backend", "default_matmul_precision")
# What else decides how programs are traced and run, as the bits of one number: a key is hashed by
# every call of a jitted function, and modes that are off cost nothing there.
MODES = (
    "interpret", "debug_nans", "debug_infs", "debug_index", "debug_overflow", "debug_key_reuse",
    "cuda_library_gemm",
)  # fmt: skip


def key_names() -> tuple[str, ...]:
    """What the entries of `Config.compiled_key` are; "modes" stands for the bits of MODES."""
    return (*_SEMANTIC, "modes", *_SEARCH)


_WATCHED = ("debug_nans", "debug_infs", "debug_overflow")  # of every operation outside of jit


PRECISIONS = (
    "default", "fastest", "high", "highest", "bfloat16", "bfloat16_3x", "tensorfloat32", "float32",
    "BF16_BF16_F32", "TF32_TF32_F32", "F32_F32_F32",
)  # fmt: skip
_CHOICES = {
    "grad_compat": ("lumjax", "jax"),
    "backend": ("cpu", "cuda", "cuda:emulated", "cuda:emulated:sm_90a"),
    "default_matmul_precision": ("", *PRECISIONS),
}
# Flags of JAX's that programs set and that mean nothing here; () stands for any value.
_FLAGS_OF_JAX: dict[str, tuple[object, ...]] = {
    "jax_platform_name": ("cpu", "", None),
    "jax_platforms": ("cpu", "", None),
    "jax_default_prng_impl": ("threefry2x32",),
    "jax_threefry_partitionable": (True,),
    "jax_numpy_rank_promotion": ("allow",),
    "jax_numpy_dtype_promotion": ("standard",),
    "jax_softmax_custom_jvp": (True,),
    "jax_transfer_guard": (),
    "jax_traceback_filtering": (),
    "jax_compilation_cache_dir": (),
    "jax_persistent_cache_min_compile_time_secs": (),
    "jax_persistent_cache_min_entry_size_bytes": (),
    "jax_use_shardy_partitioner": (),
}
_COUNTS = (
    "num_threads",
    "compile_workers",
    "search_evaluations",
    "search_terms",
    "search_seconds",
    "search_memory",
)


def _parse(name: str, kind: type, text: str) -> Any:
    if kind is bool:
        if text.lower() in ("1", "true", "on", "yes"):
            return True
        if text.lower() in ("0", "false", "off", "no", ""):
            return False
        raise ArgumentValueError(
            operation=f"reading LUMJAX_{name.upper()}",
            required="1, 0, true, false, on or off",
            got=repr(text),
            fix="correct or unset the variable",
        )
    try:
        return kind(text)
    except ValueError:
        raise ArgumentValueError(
            operation=f"reading LUMJAX_{name.upper()}",
            required=f"a value of type {kind.__name__}",
            got=repr(text),
            fix="correct or unset the variable",
        ) from None


def _from_environment() -> Settings:
    default = Settings()
    found = {
        f.name: _parse(
            f.name, type(getattr(default, f.name)), os.environ[f"LUMJAX_{f.name.upper()}"]
        )
        for f in fields(Settings)
        if f"LUMJAX_{f.name.upper()}" in os.environ
    }
    found.setdefault("cache_dir", _default_cache_dir())
    return replace(default, **found)


def _watches(settings: Settings) -> bool:
    return any(getattr(settings, name) for name in _WATCHED)


class _Scopes(threading.local):
    """A thread's overrides, innermost last, and the keys as they were last computed."""

    def __init__(self) -> None:
        self.stack: list[dict[str, Any]] = []
        self.base: Settings | None = None
        self.top: dict[str, Any] | None = None
        self.key: tuple[Any, ...] = ()
        self.compiled: tuple[Any, ...] = ()


class Config:
    """The settings in force. Attributes read; `update` sets for the process, `scope` for a block of
    this thread.
    """

    def __init__(self) -> None:
        self._base = _from_environment()
        self._local = _Scopes()
        self._watch: Callable[[bool], None] | None = None
        self._watching = int(_watches(self._base))  # how many scopes watch operations
        self._lock = threading.Lock()

    def _current(self) -> Settings:
        stack = self._local.stack
        return replace(self._base, **stack[-1]) if stack else self._base

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        name = name.removeprefix("jax_")
        stack = self._local.stack
        if stack and name in stack[-1]:
            return stack[-1][name]
        return getattr(self._base, name)

    def _checked(self, name: str, value: Any) -> tuple[str, Any]:
        short = name.removeprefix("jax_")
        known = {f.name: type(getattr(self._base, f.name)) for f in fields(Settings)}
        if short not in known:
            raise ArgumentValueError(
                operation="config.update",
                required=f"one of {', '.join(sorted(known))}",
                got=repr(name),
                fix="use a known name",
            )
        kind = known[short]
        if short == "default_matmul_precision" and value is None:
            value = ""  # as JAX has it
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not kind:
            raise ArgumentTypeError(
                operation=f"config.update({name!r})",
                required=f"a value of type {kind.__name__}",
                got=f"{value!r} of type {type(value).__name__}",
                fix=f"pass a {kind.__name__}",
            )
        if short in _CHOICES and value not in _CHOICES[short]:
            raise ArgumentValueError(
                operation=f"config.update({short!r})",
                required=" or ".join(map(repr, _CHOICES[short])),
                got=repr(value),
                fix="pass one of them",
            )
        if short in _COUNTS and not value >= 0:
            raise ArgumentValueError(
                operation=f"config.update({short!r})",
                required="a number that is not negative",
                got=repr(value),
                fix="pass 0 or more",
            )
        return short, value

    def update(self, name: str, val: Any) -> None:
        """Set one setting for the whole process; JAX's `jax_` prefix is accepted.

        Flags that only JAX has are checked and forgotten. ArgumentValueError for a name or a value
        that is not offered.

        >>> config.update("jax_enable_x64", False)
        >>> config.update("jax_platform_name", "cpu")
        """
        if name in _FLAGS_OF_JAX:
            _check_flag_of_jax(name, val)
            return
        short, value = self._checked(name, val)
        before = _watches(self._base)
        self._base = replace(self._base, **{short: value})
        self._count(_watches(self._base) - before)

    def config_with_absl(self) -> None:
        """Do nothing: settings come from LUMJAX_ variables and `update`, not from absl's flags."""

    def parse_flags_with_absl(self) -> None:
        """Do nothing, as `config_with_absl`."""

    @contextmanager
    def scope(self, **settings: Any) -> Generator[None]:
        """Change settings for this thread inside the block.

        >>> with config.scope(enable_x64=True):
        ...     config.enable_x64
        True
        """
        checked = dict(self._checked(k, v) for k, v in settings.items())
        stack = self._local.stack
        stack.append({**(stack[-1] if stack else {}), **checked})
        watching = any(checked.get(name, False) for name in _WATCHED)
        if watching:
            self._count(1)
        try:
            yield
        finally:
            stack.pop()
            if watching:
                self._count(-1)

    def set_watch(self, watch: Callable[[bool], None]) -> None:
        """Install what is told when some thread begins, and when the last one ends, to check every
        operation. It may then consult the settings of its own thread.
        """
        self._watch = watch
        if self._watching:
            watch(True)

    def _count(self, change: int) -> None:
        with self._lock:
            before, self._watching = self._watching, self._watching + change
            if self._watch is not None and (before > 0) != (self._watching > 0):
                self._watch(self._watching > 0)

    def semantic_key(self) -> tuple[Any, ...]:
        """What a traced program depends on."""
        return self._keys().key

    def compiled_key(self) -> tuple[Any, ...]:
        """What a compiled program depends on: how it was searched, besides the above. Equal keys
        are one object, which stays.
        """
        local = self._local
        stack = local.stack
        if local.base is self._base and local.top is (stack[-1] if stack else None):
            return local.compiled
        return self._keys().compiled

    def _keys(self) -> _Scopes:
        local = self._local
        top = local.stack[-1] if local.stack else None
        if local.base is not self._base or local.top is not top:
            local.base, local.top = self._base, top
            modes = sum(getattr(self, name) << k for k, name in enumerate(MODES))
            local.key = (*(getattr(self, name) for name in _SEMANTIC), modes)
            compiled = (*local.key, *(getattr(self, name) for name in _SEARCH))
            local.compiled = _known.setdefault(compiled, compiled)
        return local

    def overrides(self) -> dict[str, Any]:
        """All settings in force, as a scope takes them."""
        current = self._current()
        return {name: getattr(current, name) for name in current.__match_args__}

    def snapshot(self) -> Settings:
        """All settings in force."""
        return self._current()


_known: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # keys of compiled programs, each once
config = Config()


def _check_flag_of_jax(name: str, value: object) -> None:
    """Refuse a value that would have to change something."""
    accepted = _FLAGS_OF_JAX[name]
    if accepted and value not in accepted:
        raise ArgumentValueError(
            operation=f"config.update({name!r})",
            required=" or ".join(map(repr, accepted)),
            got=repr(value),
            fix="leave it out: nothing else is offered",
        )


@contextmanager
def enable_x64(new_val: bool = True) -> Generator[None]:
    """Keep 64-bit dtypes inside the block (JAX's `jax.experimental.enable_x64`)."""
    with config.scope(enable_x64=new_val):
        yield

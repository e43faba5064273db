"""`jit`: what its arguments mean, and the jitted functions that donate."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from lumjax.compile import Jitted, Program, dispatcher
from lumjax.donation import Donation
from lumjax.dynamic import Spec
from lumjax.errors import ArgumentTypeError, user_source
from lumjax.options import as_set, is_strict, resolved, settings_of
from lumjax.trace.core import Value

P = ParamSpec("P")
R = TypeVar("R")


class Donating(Jitted[P, R]):
    """A jitted function that may use the memory of some arguments: their arrays are gone after the
    call, if a result has their shape and dtype.
    """

    def _ready(self, program: Program) -> Callable[[Sequence[Value]], Any]:
        """The compiled program, which deletes what is donated."""
        run, consts = program.executable().run, program.consts
        unflatten = program.out_tree.unflatten
        call = (lambda leaves: run([*consts, *leaves])) if consts else run
        program.donation = donation = Donation(
            self._name, program.jaxpr, program.donated, len(consts),
            lambda: self._names(program.in_tree), self.strict,
        )  # fmt: skip
        return lambda leaves: unflatten(donation.run(call, leaves))

    def _native(self, program: Program, trees: Any) -> Callable[..., Any] | None:
        """The builtin that runs the program and deletes what is donated, where that is always of
        use.
        """
        donation = program.donation
        if donation is None or not donation.always:
            return None
        made = dispatcher().native(
            program.executable(), program.consts, program.out_tree, trees, donation.places
        )
        if made is None:
            return None
        return lambda *given: made(*given, donation.gone(user_source()))


def jit(
    fun: Callable[P, R] | None = None,
    /,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    search: int | None = None,
    timeout: float | None = None,
    profile: bool | None = None,
    background: bool | None = None,
    memory: int | None = None,
    dynamic: Any = None,
    donate: str | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> Any:
    """Compile `fun`: trace it once per signature, and run it as a few native kernels.

    `fun` is a pure function of arrays, numbers and pytrees of them. `static_argnums` and
    `static_argnames` name arguments that are (hashable) Python values of the program: a new value
    traces anew. `donate_argnums` and `donate_argnames` name arguments whose buffers the caller will
    not use again: where a result has the shape and dtype, the array is deleted by the call, and a
    later use raises DonationError; where none has, DonationWarning says so. With
    `donate="strict"` that is a DonationError, and so is an array whose memory something else knows
    of (a NumPy view, another array), which would be copied. `backend` may be
    "cuda:emulated": CUDA kernels, whose machine code for a virtual GPU is run and checked on the
    CPU, slowly ("cuda:emulated:sm_90a": those for an H100 or H200). Other backends, `keep_unused`,
    `device`, `inline` and XLA's `compiler_options` are accepted as JAX does and change nothing, nor
    do shardings on one device.

    How hard the compiler tries; what is None is taken from `lumjax.config`:

    * `search`: plans that may be priced for each region of the program (`search_evaluations`). 0
      compiles the program as it was traced, without an e-graph. Equal budgets give equal plans.
    * `timeout`: seconds of processor time after which a region's search is cut off
      (`search_seconds`). Such a plan depends on the machine; `explain` tells of it, and it is kept
      apart on disk.
    * `profile`: measure candidate kernels and keep the fastest (`search_profile`).
    * `background`: a program that no earlier process searched is compiled as traced at once, and
      searched by a thread of low priority for the next process; this one keeps what it has, so
      that its results do not change as it runs (`search_background`).
    * `memory`: bytes that the program may hold while it runs, arguments not counted
      (`search_memory`). CompileError if no plan stays below it.

    These are settings of the outermost `jit`: what it calls, jitted or not, is part of its program.

    `dynamic` names sizes that may change from call to call without compiling again: an entry for
    each positional argument (or a dictionary of entries by parameter), which is None or
    `{axis: name}` or a tree of these that is a prefix of the argument; for a function of one array
    the dictionary alone. A name is a string, or `lumjax.dim(name, min=, max=)`. Under another
    transformation the sizes are as they are.

    Raises ArgumentTypeError for an argument or result that is not an array, StaticArgumentError for
    an unhashable static argument, ShapeError for sizes that `dynamic` rules out,
    InconclusiveDimError for a question about them that has no one answer.

    >>> import lumjax, lumjax.numpy as jnp
    >>> lumjax.jit(lambda x: jnp.sum(x * 2))(jnp.arange(3.0))
    Array(6., dtype=float32)
    >>> quick = lumjax.jit(lambda x: jnp.sum(x * 2), search=0)
    >>> quick(jnp.arange(3.0))
    Array(6., dtype=float32)
    >>> total = lumjax.jit(lambda x: jnp.sum(x * 2), dynamic={0: "n"})
    >>> total(jnp.ones(3)), total(jnp.ones(40)), len(total.explain())
    (Array(6., dtype=float32), Array(80., dtype=float32), 1)
    """
    del keep_unused, device, inline, in_shardings, out_shardings, compiler_options
    if fun is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            backend=backend,
            search=search,
            timeout=timeout,
            profile=profile,
            background=background,
            memory=memory,
            dynamic=dynamic,
            donate=donate,
        )
    if not callable(fun):
        raise ArgumentTypeError(
            operation="jit",
            required="a function",
            got=f"{fun!r} of type {type(fun).__name__}",
            fix="pass the function itself, not its result",
        )
    nums, names = resolved(
        fun,
        as_set(static_argnums, int, "static_argnums"),
        as_set(static_argnames, str, "static_argnames"),
        "static",
    )
    donated = resolved(
        fun,
        as_set(donate_argnums, int, "donate_argnums"),
        as_set(donate_argnames, str, "donate_argnames"),
        "donate",
    )
    settings = settings_of(
        search_evaluations=search,
        search_seconds=timeout,
        search_profile=profile,
        search_background=background,
        search_memory=memory,
        backend=backend if backend is not None and backend.startswith("cuda") else None,
    )
    given = donated[0] | donated[1]
    spec = None if dynamic is None else Spec(fun, dynamic)
    made = (Donating if given else Jitted)(fun, nums, names, given, settings, spec)
    made.strict = is_strict(donate)
    return made

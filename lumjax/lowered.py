"""The stages of `jit(f)`: traced, lowered and compiled for one signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lumjax import dtype as dt
from lumjax import tree
from lumjax.closed import ClosedJaxpr
from lumjax.counts import work
from lumjax.errors import ArgumentTypeError, ShapeError, TreeError
from lumjax.record import record
from lumjax.trace.core import Jaxpr, Value, aval_of
from lumjax.trace.dim import Dim

if TYPE_CHECKING:
    from lumjax.executable import Executable
    from lumjax.recall import Recalled
    from lumjax.timeline import Memory


class Program(Protocol):
    """What the stages look at of a program of `lumjax.compile`."""

    @property
    def jaxpr(self) -> Jaxpr:
        """As it was traced."""
        ...

    @property
    def consts(self) -> tuple[Value, ...]:
        """The values of its first inputs."""
        ...

    @property
    def out_tree(self) -> tree.PyTreeDef:
        """The structure of the results."""
        ...

    def core(self) -> Jaxpr:
        """In core primitives."""
        ...

    def executable(self) -> Executable | Recalled:
        """Compiled."""
        ...


@record
class ArgInfo:
    """An argument of a program: its shape, its dtype, and whether its memory may be reused."""

    shape: tuple[Dim, ...]
    dtype: dt.DType
    donated: bool = False


@record
class _Stage:
    program: Program
    fun_name: str
    args_info: tuple[Any, Any]

    @property
    def in_tree(self) -> tree.PyTreeDef:
        """The structure of the arguments that are not static."""
        return tree.structure(self.args_info)

    @property
    def out_tree(self) -> tree.PyTreeDef:
        """The structure of the results."""
        return self.program.out_tree

    @property
    def out_info(self) -> Any:
        """The results' shapes and dtypes, as a pytree."""
        return self.program.out_tree.unflatten(self.program.jaxpr.out_avals)


@record
class Traced(_Stage):
    """A traced function.

    >>> import lumjax
    >>> traced = lumjax.jit(lambda x: x * 2).trace(3.0)
    >>> traced.jaxpr
    { lambda ; a:~f32[]. let b:~f32[] = mul a 2.0:~f32[] in (b,) }
    >>> float(traced.lower().compile()(4.0))
    8.0
    """

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """The program."""
        return ClosedJaxpr(self.program.jaxpr, self.program.consts)

    def lower(self) -> Lowered:
        """The next stage."""
        return Lowered(self.program, self.fun_name, self.args_info)


@record
class CoreText:
    """A program in core primitives."""

    text: str

    def as_hlo_text(self) -> str:
        """The program under the name that an HLO module's entry has."""
        return f"ENTRY main {self.text}"

    def __str__(self) -> str:
        return self.text


@record
class Lowered(_Stage):
    """A traced program, not yet compiled."""

    def as_text(self) -> str:
        """The jaxpr as text."""
        return str(self.program.jaxpr)

    def compiler_ir(self, dialect: str | None = None) -> CoreText:
        """The program in core primitives, as text: equal for programs that are computed alike.

        There is one form, whatever `dialect` asks for.

        >>> import lumjax, lumjax.numpy as jnp
        >>> square, product = lumjax.jit(lambda x: x**2), lumjax.jit(lambda x: x * x)
        >>> print(square.lower(3.0).compiler_ir("hlo").as_hlo_text())
        ENTRY main { lambda ; a:~f32[]. let b:~f32[] = mul a a in (b,) }
        >>> str(square.lower(3.0).compiler_ir()) == str(product.lower(3.0).compiler_ir())
        True
        """
        del dialect
        return CoreText(str(self.program.core()))

    def compile(self) -> Compiled:
        """Compile now."""
        executable = self.program.executable()
        return Compiled(self.program, self.fun_name, self.args_info, executable)


@record
class Compiled(_Stage):
    """A compiled program. Calling it takes the same pytrees as the jitted function, without the
    static arguments; other shapes, dtypes or structures raise.
    """

    executable: Executable | Recalled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run."""
        leaves, given = tree.flatten((args, kwargs))
        if given != self.in_tree:
            raise TreeError(
                operation=f"a compiled {self.fun_name}",
                required=f"arguments of the structure {self.in_tree}",
                got=str(given),
                fix="compile it for these arguments, or call the jitted function",
            )
        wants = self.program.jaxpr.in_avals[len(self.program.consts) :]
        for k, (leaf, want) in enumerate(zip(leaves, wants, strict=True)):
            aval = aval_of(leaf)
            if (aval.shape, aval.dtype) != (want.shape, want.dtype):
                path = tree.leaves_with_path((args, kwargs))[k][0]
                kind = ShapeError if aval.shape != want.shape else ArgumentTypeError
                raise kind(
                    operation=f"a compiled {self.fun_name}",
                    required=f"{want} for argument {tree.keystr(path[1:])}",
                    got=str(aval),
                    fix="compile it for these arguments, or call the jitted function",
                )
        outs = self.executable.run([*self.program.consts, *leaves])
        return self.program.out_tree.unflatten(outs)

    def as_text(self) -> str:
        """The kernels as LLVM IR text."""
        return self.executable.as_text()

    def cost_analysis(self) -> dict[str, float]:
        """What the program as it is written takes ("flops", with a product and its sum as two;
        "transcendentals"; "bytes accessed": arguments, results and temporaries), and what was
        compiled: predicted seconds, numbers of kernels and of their launches.

        >>> import lumjax, lumjax.numpy as jnp
        >>> compiled = lumjax.jit(lambda x: jnp.sin(x) @ x).lower(jnp.ones((2, 2))).compile()
        >>> cost = compiled.cost_analysis()
        >>> cost["flops"], cost["transcendentals"], cost["kernels"]
        (16.0, 4.0, 1.0)
        """
        memory = self.memory_analysis()
        touched = memory.argument_size_in_bytes + memory.output_size_in_bytes
        return {
            **work(self.program.core()),
            "bytes accessed": float(touched + 2 * memory.temp_size_in_bytes),
            **self.executable.cost_analysis(),
        }

    def memory_analysis(self) -> Memory:
        """Bytes of arguments, results and temporaries, and the most held at one step.

        >>> import lumjax, lumjax.numpy as jnp
        >>> compiled = lumjax.jit(lambda x: jnp.sum(x * 2)).lower(jnp.ones(8)).compile()
        >>> compiled.memory_analysis().argument_size_in_bytes
        32
        """
        return self.executable.timeline().totals()

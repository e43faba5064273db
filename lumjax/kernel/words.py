"""Terms and groups in words, for people: `o0[a0] = sum a1. i0[a0, a1] * i1[a1]`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.evaluate import literal
from lumjax.kernel.term import (
    Apply,
    Axis,
    Buffer,
    Index,
    Lit,
    Load,
    Reduction,
    Root,
    Running,
    Term,
    children,
    subterms,
)
from lumjax.trace.dim import Expr

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">",
          "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|"}  # fmt: skip
_LONG = 110  # characters after which a shared subterm gets a name of its own


def buffer_words(buffer: Buffer) -> str:
    """A buffer with its shape."""
    return f"{buffer.name}:{dt.short_name(buffer.dtype)}[{','.join(map(str, buffer.shape))}]"


def axis_words(axes: Sequence[Axis]) -> str:
    """Axes with their extents."""
    return ", ".join(f"{a.name}<{a.extent}" for a in axes)


def root_words(root: Root) -> list[str]:
    """What is stored, one line, and a line for each subterm that gets a name."""
    words = _Words(root.term)
    place = f"{root.buffer.name}[{', '.join(a.name for a in root.axes)}]"
    value = words.of(root.term)
    return [f"{place} = {value}", *(f"  {n} = {text}" for n, text in words.named)]


class _Words:
    """Texts of subterms; long ones that occur more than once are named."""

    def __init__(self, term: Term) -> None:
        self.named: list[tuple[str, str]] = []
        self.text: dict[Term, str] = {}
        uses: dict[Term, int] = {}
        order = list(subterms(term))
        for t in order:
            for c in children(t):
                uses[c] = uses.get(c, 0) + 1
        for t in order:
            text = self._text(t)
            shared = uses.get(t, 0) > 1 and len(text) > 12
            if t is not term and (shared or len(text) > _LONG):
                name = f"v{len(self.named)}"
                self.named.append((name, text))
                text = name
            self.text[t] = text

    def of(self, term: Term) -> str:
        return self.text[term]

    def _inner(self, term: Term) -> str:
        text = self.text[term]
        infix = isinstance(term, Apply) and term.op.name in _INFIX and not text.isidentifier()
        return f"({text})" if infix else text

    def _text(self, term: Term) -> str:
        match term:
            case Lit():
                return _literal(term)
            case Load(buffer=buffer, coords=coords, valid=valid, indices=indices):
                names = {n: self.text[t] for n, t in indices}
                where = ", ".join(_coordinate(c, names) for c in coords)
                masked = f" if {_coordinate(valid, names)}" if isinstance(valid, Expr) else ""
                return f"{buffer.name}[{where}{masked}]"
            case Index(expr=expr, indices=indices):
                return f"index({_coordinate(expr, {n: self.text[t] for n, t in indices})})"
            case Apply(op=op, args=args, dtype=dtype):
                if op.name in _INFIX and len(args) == 2:
                    return f"{self._inner(args[0])} {_INFIX[op.name]} {self._inner(args[1])}"
                name = dt.short_name(dtype) if op.name == "cast" else op.name
                return f"{name}({', '.join(self.text[a] for a in args)})"
            case Reduction(op=op, axes=axes, body=body, scale=scale, shift=shift):
                bound = " ".join(sorted(a.name for a in axes))
                follows = "" if scale is None else f" scaled with {self._inner(scale.statistic)}"
                follows += "" if shift is None else f" moved with {self._inner(shift.statistic)}"
                return f"({op.value} {bound}. {self.text[body]}{follows})"
            case Running(of=of):
                return f"running({self.text[of]})"


def _literal(term: Lit) -> str:
    return str(np.asarray(literal(term))[()])


def _coordinate(value: object, names: dict[str, str]) -> str:
    text = str(value)
    for name, term in names.items():
        text = text.replace(name, term)
    return text

"""Exceptions and warnings. Each says the operation, what it requires, what it got, the user's line
and the remedy.

LumjaxError
├── ShapeError            (TypeError, ValueError)    shapes do not fit the operation
├── DTypeError            (TypeError)                a dtype the operation does not accept
├── ArgumentTypeError     (TypeError)                not an array, not a function, wrong Python type
├── ArgumentValueError    (ValueError)               right type, impossible value
│   └── ScalarRangeError  (OverflowError)            a number that does not fit the dtype
├── TreeError             (TypeError, ValueError)    pytrees that do not match
├── GradientError         (TypeError, ValueError)    non-scalar loss, integer input, bad cotangent
├── ConcretizationError   (TypeError)                Python needs the value of a traced array
│   └── NonConcreteBooleanIndexError (IndexError)    a traced mask whose number of Trues is a shape
├── LeakedTracerError     (RuntimeError)             a tracer outlived its transformation
├── IndexRangeError       (IndexError)               a constant index outside its axis
├── StaticArgumentError   (ValueError)               an unhashable static argument
├── MissingRuleError      (NotImplementedError)      a primitive lacks the rule that is needed
├── UnsupportedError      (NotImplementedError)      deliberately not offered; says what to use
├── InconclusiveDimError  (TypeError)                a symbolic size cannot decide the question
├── UnboundAxisError      (NameError)                a collective over an axis name nobody bound
├── CheckError            (RuntimeError)             an ill-formed jaxpr (our own fault)
├── VerificationError     (RuntimeError)             a kernel disagrees with the interpreter
├── CompileError          (RuntimeError)             native code could not be made
├── DonationError         (ValueError)               a donated array used again
├── CheckpointError       (ValueError)               a file that is no checkpoint, or is damaged
├── ArtefactError         (ValueError)               bytes that are no exported program, or damaged
└── HookError             (ImportError)              lumjax.compat cannot stand in for JAX

CacheWarning (UserWarning)       a cache entry was unusable and is rewritten
PrecisionWarning (UserWarning)   64-bit input was narrowed
"""

from __future__ import annotations

import os
import sys

from lumjax.record import record

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
hidden_files: list[str] = []  # of libraries that ask not to be taken for the user


@record
class Source:
    """A place in the user's code."""

    file: str
    line: int
    function: str
    backward: bool = False  # whether it is run by the backward pass of what is written there

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


def user_source() -> Source | None:
    """The innermost stack frame outside this package, or None when there is none."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if not file.startswith((_PACKAGE, "<frozen", "<string>")) and file not in hidden_files:
            return Source(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


class LumjaxError(Exception):
    """The root. `fix` is a sentence that tells the user what to do."""

    def __init__(
        self, *, operation: str, required: str, got: str, fix: str, source: Source | None = None
    ) -> None:
        self.operation = operation
        self.required = required
        self.got = got
        self.fix = fix
        self.source = source or user_source()
        where = f" ({self.source})" if self.source else ""
        remedy = fix[:1].upper() + fix[1:].rstrip(".")
        super().__init__(f"{operation}: requires {required}; got {got}. {remedy}.{where}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (
            type(self),
            self.operation,
            self.required,
            self.got,
            self.fix,
            self.source,
        )


def _rebuild(
    kind: type[LumjaxError],
    operation: str,
    required: str,
    got: str,
    fix: str,
    source: Source | None,
) -> LumjaxError:
    return kind(operation=operation, required=required, got=got, fix=fix, source=source)


class ShapeError(LumjaxError, TypeError, ValueError):
    """Shapes do not fit the operation."""


class DTypeError(LumjaxError, TypeError):
    """A dtype that the operation does not accept."""


class ArgumentTypeError(LumjaxError, TypeError):
    """An argument of the wrong Python type, such as a list where an array is needed."""


class ArgumentValueError(LumjaxError, ValueError):
    """An argument of the right type with an impossible value."""


class ScalarRangeError(ArgumentValueError, OverflowError):
    """A number that does not fit the dtype it is converted to."""


class TreeError(LumjaxError, TypeError, ValueError):
    """Pytrees that do not match."""


class GradientError(LumjaxError, TypeError, ValueError):
    """A differentiation that is not defined: non-scalar loss, integer input, cotangent of another
    shape.
    """


class ConcretizationError(LumjaxError, TypeError):
    """Python asked for the value of a traced array."""


class NonConcreteBooleanIndexError(ConcretizationError, IndexError):
    """A traced bool array was used as an index: how many of it are True would decide a shape."""


TracerBoolConversionError = ConcretizationError
TracerIntegerConversionError = ConcretizationError
TracerArrayConversionError = ConcretizationError
ConcretizationTypeError = ConcretizationError


class LeakedTracerError(LumjaxError, RuntimeError):
    """A tracer was used after its transformation had ended."""


UnexpectedTracerError = LeakedTracerError


class IndexRangeError(LumjaxError, IndexError):
    """A constant index outside its axis."""


class StaticArgumentError(LumjaxError, ValueError):
    """A static argument that cannot be hashed."""


class MissingRuleError(LumjaxError, NotImplementedError):
    """A primitive lacks the rule that a transformation needs."""


class UnsupportedError(LumjaxError, NotImplementedError):
    """Something deliberately not offered; the message says what to use instead."""


class InconclusiveDimError(LumjaxError, TypeError):
    """A question about a symbolic size that its bounds do not decide."""


class UnboundAxisError(LumjaxError, NameError):
    """A collective over an axis name that no enclosing vmap binds."""


class CheckError(LumjaxError, RuntimeError):
    """An ill-formed jaxpr."""


class VerificationError(LumjaxError, RuntimeError):
    """A kernel that disagrees with the interpreter."""


class CompileError(LumjaxError, RuntimeError):
    """Native code could not be made."""


class NonFiniteError(LumjaxError, FloatingPointError):
    """A NaN or an infinity came up while debug_nans or debug_infs is on."""


class OverflowedError(LumjaxError, OverflowError):
    """An integer wrapped, or a cast lost the value, while debug_overflow is on."""


class KeyReuseError(LumjaxError, RuntimeError):
    """A random key was used twice while debug_key_reuse is on."""


class FailedCheckError(LumjaxError, ValueError, RuntimeError):
    """A check of lumjax.experimental.checkify does not hold."""


class DonationError(LumjaxError, ValueError, RuntimeError):
    """A donated array was used again, or donated twice."""


class CheckpointError(LumjaxError, ValueError):
    """A file is no checkpoint, or is damaged."""


class ArtefactError(LumjaxError, ValueError):
    """Bytes are no exported program, or are damaged."""


class HookError(LumjaxError, ImportError):
    """The import hook of `lumjax.compat` cannot be installed."""


# JAX's names, for code that catches them.
JaxRuntimeError = RuntimeError  # CompileError and VerificationError among others


class CacheWarning(UserWarning):
    """A cache entry was corrupt, truncated or foreign; it is ignored and rewritten."""


class PrecisionWarning(UserWarning):
    """64-bit input was narrowed to 32 bits because x64 is off."""


class DonationWarning(UserWarning):
    """A donated array has the shape and dtype of no result, so that its memory cannot be reused."""


class SideEffectWarning(UserWarning):
    """A function rebinds a name outside of it while it is traced: that happens once per trace."""

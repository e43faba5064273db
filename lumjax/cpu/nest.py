"""Rows of a program that run other rows: loops and choices, and the copies that these need.

A loop does no work of its own. Before each step it writes into the table where the step's carry,
rows and results lie, so that kernels read and write them in place; carries alternate between two
buffers. What it needs is an array of numbers, described beside each function of the text below.
"""

from __future__ import annotations

import ctypes
from typing import Any

REPEAT, CHOOSE = 2, 3  # kinds of rows; 0 and 1 are kernels


def _fields(of: str, fields: str) -> str:
    """Loads of the numbers that lie at `of`: "i64 size, ptr body" gives types and names."""
    lines: list[str] = []
    for k, field in enumerate(fields.split(",")):
        kind, name = field.split()
        lines += [
            f"  %{name}.at = getelementptr i64, ptr %{of}, i64 {k}",
            f"  %{name} = load {kind}, ptr %{name}.at",
        ]
    return "\n".join(lines)


def _slot(place: str, name: str, kind: str = "i64") -> str:
    """A load of what the table has at a place."""
    return (
        f"  %{name}.in = getelementptr i64, ptr %table, i64 %{place}\n"
        f"  %{name} = load {kind}, ptr %{name}.in"
    )


def _fill(place: str, value: str) -> str:
    """A store to a place of the table."""
    return (
        f"  %{place}.to = getelementptr i64, ptr %table, i64 %{place}\n"
        f"  store i64 %{value}, ptr %{place}.to"
    )


def _each(signature: str, fields: str, *body: str, before: str = "") -> str:
    """A function that does `body` for each of the `%n` records at `%list`, after `before`."""
    width = fields.count(",") + 1
    rest = "\n".join([_fields("row", fields), *body])
    return f"""
define internal void @{signature} nounwind {{
entry:
{before}
  br label %look
look:
  %k = phi i64 [0, %entry], [%next, %do]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %do, label %out
do:
  %row = getelementptr [{width} x i64], ptr %list, i64 %k
{rest}
  %next = add i64 %k, 1
  br label %look
out:
  ret void
}}
"""


_INTERRUPTS = r"""
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)

; What a signal's handler raised. Python runs handlers in its main thread alone, so one is enough.
@raised = internal global [3 x ptr] zeroinitializer

; 1 if a signal's handler raised something
define internal i32 @check() nounwind {
entry:
  %lock = call i32 @PyGILState_Ensure()
  %status = call i32 @PyErr_CheckSignals()
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %keep, label %out
keep:
  %p1 = getelementptr ptr, ptr @raised, i64 1
  %p2 = getelementptr ptr, ptr @raised, i64 2
  call void @PyErr_Fetch(ptr @raised, ptr %p1, ptr %p2)
  br label %out
out:
  %stop = phi i32 [0, %entry], [1, %keep]
  call void @PyGILState_Release(i32 %lock)
  ret i32 %stop
}

; called with the interpreter's lock: raises it
define void @lumjax_raise() nounwind {
  %p1 = getelementptr ptr, ptr @raised, i64 1
  %p2 = getelementptr ptr, ptr @raised, i64 2
  %a = load ptr, ptr @raised
  %b = load ptr, ptr %p1
  %c = load ptr, ptr %p2
  store ptr null, ptr @raised
  store ptr null, ptr %p1
  store ptr null, ptr %p2
  call void @PyErr_Restore(ptr %a, ptr %b, ptr %c)
  ret void
}
"""

# A place that is another name of one.
_ALIAS = _each(
    "alias(ptr %table, ptr %list, i64 %n)",
    "i64 place, i64 same",
    _slot("same", "address"),
    _fill("place", "address"),
)

# The place of a row, of the stack that it is a row of, and the bytes of a row.
_ROWS = _each(
    "rows(ptr %table, ptr %list, i64 %n, i64 %r)",
    "i64 place, i64 stack, i64 bytes",
    _slot("stack", "base"),
    "  %shift = mul i64 %bytes, %r",
    "  %address = add i64 %base, %shift",
    _fill("place", "address"),
)

# The place where a step reads a carry, the one where it writes it, those of the first value, of the
# last value and of two buffers, and the bytes.
_CARRY = "i64 in, i64 made, i64 init, i64 result, i64 first, i64 second, i64 bytes"
_CARRIES = _each(
    "carries(ptr %table, ptr %list, i64 %n, i64 %t, i1 %last)",
    _CARRY,
    """
  %older = select i1 %even, i64 %second, i64 %first
  %newer = select i1 %even, i64 %first, i64 %second
  %source = select i1 %start, i64 %init, i64 %older
  %target = select i1 %last, i64 %result, i64 %newer""",
    _slot("source", "read"),
    _fill("in", "read"),
    _slot("target", "write"),
    _fill("made", "write"),
    before="""
  %bit = and i64 %t, 1
  %even = icmp eq i64 %bit, 0
  %start = icmp eq i64 %t, 0""",
)

_MOVE = r"""
define internal void @move(ptr %to, ptr %from, i64 %bytes) nounwind {
entry:
  %words = lshr i64 %bytes, 3
  br label %look
look:
  %k = phi i64 [0, %entry], [%next, %word]
  %more = icmp ult i64 %k, %words
  br i1 %more, label %word, label %rest
word:
  %a = getelementptr i64, ptr %from, i64 %k
  %b = getelementptr i64, ptr %to, i64 %k
  %v = load i64, ptr %a, align 1
  store i64 %v, ptr %b, align 1
  %next = add i64 %k, 1
  br label %look
rest:
  %begin = shl i64 %words, 3
  br label %tail
tail:
  %j = phi i64 [%begin, %rest], [%later, %byte]
  %left = icmp ult i64 %j, %bytes
  br i1 %left, label %byte, label %out
byte:
  %c = getelementptr i8, ptr %from, i64 %j
  %d = getelementptr i8, ptr %to, i64 %j
  %w = load i8, ptr %c
  store i8 %w, ptr %d
  %later = add i64 %j, 1
  br label %tail
out:
  ret void
}
"""

# The last values of carries, from where the next step would read them.
_FINISH = _each(
    "finish(ptr %table, ptr %list, i64 %n)",
    _CARRY,
    _slot("in", "source", "ptr"),
    _slot("result", "target", "ptr"),
    "  call void @move(ptr %target, ptr %source, i64 %bytes)",
)

# A kernel that copies: slots (place of the target, of the source, of the bytes), of 32 bits.
_COPY = f"""
define void @lumjax_copy(ptr %table, ptr %slots, i64 %job, ptr %scratch) nounwind {{
  %sp = getelementptr i32, ptr %slots, i64 1
  %bp = getelementptr i32, ptr %slots, i64 2
  %d = load i32, ptr %slots
  %s = load i32, ptr %sp
  %b = load i32, ptr %bp
  %into = zext i32 %d to i64
  %out = zext i32 %s to i64
  %size = zext i32 %b to i64
{_slot("into", "target", "ptr")}
{_slot("out", "source", "ptr")}
{_slot("size", "bytes")}
  call void @move(ptr %target, ptr %source, i64 %bytes)
  ret void
}}
"""

# Steps (-1: while), 1 from the last row, aliases, rows, carries, the body's program, the test's,
# the place of the test's result, steps between two looks at whether the user interrupts. Lists and
# programs are (how many, address).
_LOOP = (
    "i64 steps, i64 reverse, i64 aliases, ptr alias, i64 stacks, ptr stack, i64 count, ptr carry, "
    "i64 size, ptr body, i64 tests, ptr test, i64 place, i64 interval"
)
_REPEAT = f"""
define internal i32 @repeat(ptr %loop, ptr %table, ptr %p, ptr %scratch, i64 %stride) nounwind {{
entry:
{_fields("loop", _LOOP)}
  %flag = getelementptr i64, ptr %table, i64 %place
  %open = icmp slt i64 %steps, 0
  %backward = icmp ne i64 %reverse, 0
  %end = add i64 %steps, -1
  call void @alias(ptr %table, ptr %alias, i64 %aliases)
  br label %step
step:
  %t = phi i64 [0, %entry], [%next, %ran], [%next, %looked]
  %quiet = phi i64 [1, %entry], [%quiet1, %ran], [1, %looked]
  %final = icmp eq i64 %t, %end
  call void @carries(ptr %table, ptr %carry, i64 %count, i64 %t, i1 %final)
  br i1 %open, label %ask, label %bounded
ask:
  %asked = call i32 @lumjax_run(ptr %test, i64 %tests, ptr %table, ptr %p, ptr %scratch,
                                i64 %stride)
  %broken = icmp ne i32 %asked, 0
  br i1 %broken, label %stopped, label %answer
answer:
  %result = load ptr, ptr %flag
  %bit = load i8, ptr %result
  %go = icmp ne i8 %bit, 0
  br i1 %go, label %work, label %over
bounded:
  %left = icmp slt i64 %t, %steps
  br i1 %left, label %row, label %done
row:
  %mirror = sub i64 %end, %t
  %r = select i1 %backward, i64 %mirror, i64 %t
  call void @rows(ptr %table, ptr %stack, i64 %stacks, i64 %r)
  br label %work
work:
  %status = call i32 @lumjax_run(ptr %body, i64 %size, ptr %table, ptr %p, ptr %scratch,
                                 i64 %stride)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %stopped, label %ran
ran:
  %next = add i64 %t, 1
  %quiet1 = add i64 %quiet, 1
  %due = icmp sge i64 %quiet, %interval
  br i1 %due, label %check, label %step
check:
  %interrupted = call i32 @check()
  %stop = icmp ne i32 %interrupted, 0
  br i1 %stop, label %stopped, label %looked
looked:
  br label %step
done:
  %none = icmp eq i64 %steps, 0
  br i1 %none, label %over, label %out
over:
  call void @finish(ptr %table, ptr %carry, i64 %count)
  br label %out
out:
  ret i32 0
stopped:
  ret i32 1
}}
"""

# The place of the number, then for each branch its aliases and its program.
_CHOOSE = f"""
define internal i32 @choose(ptr %choice, ptr %table, ptr %p, ptr %scratch, i64 %stride) nounwind {{
{_fields("choice", "i64 place")}
{_slot("place", "where", "ptr")}
  %number = load i32, ptr %where
  %branches = getelementptr i64, ptr %choice, i64 1
  %branch = getelementptr [4 x i64], ptr %branches, i32 %number
{_fields("branch", "i64 aliases, ptr alias, i64 size, ptr rows")}
  call void @alias(ptr %table, ptr %alias, i64 %aliases)
  %status = call i32 @lumjax_run(ptr %rows, i64 %size, ptr %table, ptr %p, ptr %scratch,
                                 i64 %stride)
  ret i32 %status
}}
"""

_NESTED = r"""
define internal i32 @nested(i64 %kind, ptr %what, ptr %table, ptr %p, ptr %scratch,
                            i64 %stride) nounwind {
entry:
  %loop = icmp eq i64 %kind, 2
  br i1 %loop, label %again, label %one
again:
  %a = call i32 @repeat(ptr %what, ptr %table, ptr %p, ptr %scratch, i64 %stride)
  ret i32 %a
one:
  %b = call i32 @choose(ptr %what, ptr %table, ptr %p, ptr %scratch, i64 %stride)
  ret i32 %b
}
"""

TEXT = "".join(
    [_INTERRUPTS, _ALIAS, _ROWS, _CARRIES, _MOVE, _FINISH, _COPY, _REPEAT, _CHOOSE, _NESTED]
)


def symbols() -> dict[str, int]:
    """Addresses of the interpreter's functions that the text calls."""
    names = (
        "PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch",
        "PyErr_Restore",
    )  # fmt: skip
    return {n: _address(getattr(ctypes.pythonapi, n)) for n in names}


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None, "a function has an address"
    return address

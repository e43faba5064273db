"""Rows of a program that run other rows: loops and choices, and the copies that these need.

A loop does no work of its own. Before each step it writes into the table where the step's carry,
rows and results lie, so that kernels read and write them in place; carries alternate between two
buffers. What it needs is an array of numbers, described beside each function of the text below.
"""

from __future__ import annotations

import ctypes
from typing import Any

REPEAT, CHOOSE = 2, 3  # kinds of rows; 0 and 1 are kernels

TEXT = r"""
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

; pairs (place, place it is another name of)
define internal void @alias(ptr %table, ptr %pairs, i64 %n) nounwind {
entry:
  br label %look
look:
  %k = phi i64 [0, %entry], [%next, %move]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %move, label %out
move:
  %row = getelementptr [2 x i64], ptr %pairs, i64 %k
  %sp = getelementptr i64, ptr %row, i64 1
  %d = load i64, ptr %row
  %s = load i64, ptr %sp
  %from = getelementptr i64, ptr %table, i64 %s
  %to = getelementptr i64, ptr %table, i64 %d
  %address = load i64, ptr %from
  store i64 %address, ptr %to
  %next = add i64 %k, 1
  br label %look
out:
  ret void
}

; triples (place of a row, place of the stack, bytes of a row)
define internal void @rows(ptr %table, ptr %list, i64 %n, i64 %r) nounwind {
entry:
  br label %look
look:
  %k = phi i64 [0, %entry], [%next, %move]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %move, label %out
move:
  %row = getelementptr [3 x i64], ptr %list, i64 %k
  %sp = getelementptr i64, ptr %row, i64 1
  %bp = getelementptr i64, ptr %row, i64 2
  %d = load i64, ptr %row
  %s = load i64, ptr %sp
  %bytes = load i64, ptr %bp
  %from = getelementptr i64, ptr %table, i64 %s
  %to = getelementptr i64, ptr %table, i64 %d
  %base = load i64, ptr %from
  %shift = mul i64 %bytes, %r
  %address = add i64 %base, %shift
  store i64 %address, ptr %to
  %next = add i64 %k, 1
  br label %look
out:
  ret void
}

; sevens (place where a step reads a carry, where it writes it, places of the first value, of the
; last value and of two buffers, bytes)
define internal void @carries(ptr %table, ptr %list, i64 %n, i64 %t, i1 %last) nounwind {
entry:
  %bit = and i64 %t, 1
  %even = icmp eq i64 %bit, 0
  %start = icmp eq i64 %t, 0
  br label %look
look:
  %k = phi i64 [0, %entry], [%next, %move]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %move, label %out
move:
  %row = getelementptr [7 x i64], ptr %list, i64 %k
  %p1 = getelementptr i64, ptr %row, i64 1
  %p2 = getelementptr i64, ptr %row, i64 2
  %p3 = getelementptr i64, ptr %row, i64 3
  %p4 = getelementptr i64, ptr %row, i64 4
  %p5 = getelementptr i64, ptr %row, i64 5
  %in = load i64, ptr %row
  %made = load i64, ptr %p1
  %init = load i64, ptr %p2
  %result = load i64, ptr %p3
  %first = load i64, ptr %p4
  %second = load i64, ptr %p5
  %older = select i1 %even, i64 %second, i64 %first
  %newer = select i1 %even, i64 %first, i64 %second
  %source = select i1 %start, i64 %init, i64 %older
  %target = select i1 %last, i64 %result, i64 %newer
  %from = getelementptr i64, ptr %table, i64 %source
  %to = getelementptr i64, ptr %table, i64 %in
  %read = load i64, ptr %from
  store i64 %read, ptr %to
  %from2 = getelementptr i64, ptr %table, i64 %target
  %to2 = getelementptr i64, ptr %table, i64 %made
  %write = load i64, ptr %from2
  store i64 %write, ptr %to2
  %next = add i64 %k, 1
  br label %look
out:
  ret void
}

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

; the last values of carries, from where the next step would read them
define internal void @finish(ptr %table, ptr %list, i64 %n) nounwind {
entry:
  br label %look
look:
  %k = phi i64 [0, %entry], [%next, %copy]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %copy, label %out
copy:
  %row = getelementptr [7 x i64], ptr %list, i64 %k
  %p3 = getelementptr i64, ptr %row, i64 3
  %p6 = getelementptr i64, ptr %row, i64 6
  %in = load i64, ptr %row
  %result = load i64, ptr %p3
  %bytes = load i64, ptr %p6
  %from = getelementptr i64, ptr %table, i64 %in
  %to = getelementptr i64, ptr %table, i64 %result
  %source = load ptr, ptr %from
  %target = load ptr, ptr %to
  call void @move(ptr %target, ptr %source, i64 %bytes)
  %next = add i64 %k, 1
  br label %look
out:
  ret void
}

; a kernel that copies: slots (place of the target, place of the source, place of the bytes)
define void @lumjax_copy(ptr %table, ptr %slots, i64 %job, ptr %scratch) nounwind {
  %sp = getelementptr i32, ptr %slots, i64 1
  %bp = getelementptr i32, ptr %slots, i64 2
  %d = load i32, ptr %slots
  %s = load i32, ptr %sp
  %b = load i32, ptr %bp
  %to = getelementptr i64, ptr %table, i32 %d
  %from = getelementptr i64, ptr %table, i32 %s
  %size = getelementptr i64, ptr %table, i32 %b
  %target = load ptr, ptr %to
  %source = load ptr, ptr %from
  %bytes = load i64, ptr %size
  call void @move(ptr %target, ptr %source, i64 %bytes)
  ret void
}

; a loop: 0 steps (-1: while), 1 from the last row, 2-3 aliases, 4-5 rows, 6-7 carries, 8-9 the
; body's program, 10-11 the test's, 12 place of the test's result, 13 steps between two looks at
; whether the user interrupts. Lists and programs are (how many, address).
define internal i32 @repeat(ptr %loop, ptr %table, ptr %p, ptr %scratch, i64 %stride) nounwind {
entry:
  %p1 = getelementptr i64, ptr %loop, i64 1
  %p2 = getelementptr i64, ptr %loop, i64 2
  %p3 = getelementptr i64, ptr %loop, i64 3
  %p4 = getelementptr i64, ptr %loop, i64 4
  %p5 = getelementptr i64, ptr %loop, i64 5
  %p6 = getelementptr i64, ptr %loop, i64 6
  %p7 = getelementptr i64, ptr %loop, i64 7
  %p8 = getelementptr i64, ptr %loop, i64 8
  %p9 = getelementptr i64, ptr %loop, i64 9
  %p10 = getelementptr i64, ptr %loop, i64 10
  %p11 = getelementptr i64, ptr %loop, i64 11
  %p12 = getelementptr i64, ptr %loop, i64 12
  %p13 = getelementptr i64, ptr %loop, i64 13
  %steps = load i64, ptr %loop
  %reverse = load i64, ptr %p1
  %aliases = load i64, ptr %p2
  %alias = load ptr, ptr %p3
  %stacks = load i64, ptr %p4
  %stack = load ptr, ptr %p5
  %count = load i64, ptr %p6
  %carry = load ptr, ptr %p7
  %size = load i64, ptr %p8
  %body = load ptr, ptr %p9
  %tests = load i64, ptr %p10
  %test = load ptr, ptr %p11
  %place = load i64, ptr %p12
  %interval = load i64, ptr %p13
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
}

; a choice: 0 place of the number, then for each branch its aliases and its program
define internal i32 @choose(ptr %choice, ptr %table, ptr %p, ptr %scratch, i64 %stride) nounwind {
  %place = load i64, ptr %choice
  %ip = getelementptr i64, ptr %table, i64 %place
  %where = load ptr, ptr %ip
  %number = load i32, ptr %where
  %branches = getelementptr i64, ptr %choice, i64 1
  %branch = getelementptr [4 x i64], ptr %branches, i32 %number
  %p1 = getelementptr i64, ptr %branch, i64 1
  %p2 = getelementptr i64, ptr %branch, i64 2
  %p3 = getelementptr i64, ptr %branch, i64 3
  %aliases = load i64, ptr %branch
  %alias = load ptr, ptr %p1
  %size = load i64, ptr %p2
  %rows = load ptr, ptr %p3
  call void @alias(ptr %table, ptr %alias, i64 %aliases)
  %status = call i32 @lumjax_run(ptr %rows, i64 %size, ptr %table, ptr %p, ptr %scratch,
                                 i64 %stride)
  ret i32 %status
}

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

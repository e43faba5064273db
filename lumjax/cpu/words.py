"""The language of the builtin function that calls a compiled program: LLVM's, with more words.

`%p` is the plan, an array of words; `%m` the memory of a call, whose first words are references
that the call owns:

    %x = field TYPE NAME        a word of the plan
    %x = area NAME              an area of the call's memory: the plan says where
    %x = kind NAME              an object that the code knows
    %x = word TYPE %base, I     a word of an array
    keep TYPE %value, %base, I  store one
"""

from __future__ import annotations

import re
from itertools import count

from lumjax.record import record

FIELDS = (
    "kinds", "expected", "trees", "roots", "n.inputs", "inputs", "n.consts", "consts", "n.table",
    "table", "n.fresh", "fresh", "n.outputs", "outputs", "result", "n.steps", "steps", "run",
    "raise", "launch", "whole", "take", "n.arena", "arena", "n.donated", "donated", "n.owned",
    "hash", "words", "objects.at", "data.at", "fresh.at", "made.at", "block.at", "seen.at",
    "table.at", "numbers.at",
)  # fmt: skip
KINDS = (
    "array", "ndarray", "str", "deleted", "class", "miss", "launches", "none", "float", "int",
    "bool", "address", "bytes",
)  # fmt: skip
# Kinds of nodes: a leaf, an object that is always the same, containers, and what Python makes.
LEAF, SAME, TUPLE, LIST, DICT, MAKE = range(6)
FRESH, INPUT, LITERAL = range(3)  # kinds of outputs
SCALARS = {"float32": 1, "float64": 2, "int32": 3, "int64": 4, "bool": 5}
NDARRAY, NEW, BASED = 2, 94, 282  # in NumPy's table


@record
class Layout:
    """Which words of an Array its slots are."""

    data: int
    weak: int
    aval: int


def whole(body: str, layout: Layout, alignment: int) -> str:
    """A module in LLVM's words, with what it knows of memory filled in."""
    values = {
        "DATA": layout.data, "WEAK": layout.weak, "AVAL": layout.aval, "ALIGN": alignment,
        "BELOW": alignment - 1, "MASK": -alignment,
    }  # fmt: skip
    for name, value in values.items():
        body = body.replace(f"${name}", str(value))
    return _expanded(body)


def _expanded(body: str) -> str:
    """The text with the words of this module put into LLVM's."""
    numbers = count()

    def field(m: re.Match[str]) -> str:
        at = f"getelementptr i64, ptr %p, i64 {FIELDS.index(m[3])}"
        return f"  {m[1]}.at = {at}\n  {m[1]} = load {m[2]}, ptr {m[1]}.at"

    def area(m: re.Match[str]) -> str:
        name = f"{m[1]}.n"
        return f"  {name} = field i64 {m[2]}.at\n  {m[1]} = getelementptr i64, ptr %m, i64 {name}"

    def kind(m: re.Match[str]) -> str:
        return f"  {m[1]}.of = field ptr kinds\n  {m[1]} = word ptr {m[1]}.of, {KINDS.index(m[2])}"

    def word(m: re.Match[str]) -> str:
        at = f"getelementptr i64, ptr {m[3]}, i64 {m[4]}"
        return f"  {m[1]}.at = {at}\n  {m[1]} = load {m[2]}, ptr {m[1]}.at"

    def keep(m: re.Match[str]) -> str:
        at = f"%to.{next(numbers)}"
        to = f"{at} = getelementptr i64, ptr {m[3]}, i64 {m[4]}"
        return f"  {to}\n  store {m[1]} {m[2]}, ptr {at}"

    for pattern, made in (
        (r"^ *(%[\w.]+) = area (\w+)$", area),
        (r"^ *(%[\w.]+) = kind (\w+)$", kind),
        (r"^ *(%[\w.]+) = field (\w+) ([\w.]+)$", field),
        (r"^ *(%[\w.]+) = word (\w+) (%[\w.]+), (%?[\w.]+)$", word),
        (r"^ *keep (\w+) ([%\w.]+), (%[\w.]+), (%?[\w.]+)$", keep),
    ):
        body = re.sub(pattern, made, body, flags=re.MULTILINE)
    return body


def each(name: str, number: str, one: str) -> str:
    """A function that does `one` for each of a plan's things, until it fails."""
    return f"""
define internal i1 @{name}(ptr %p, ptr %m) nounwind {{
entry:
  %n = field i64 {number}
  br label %look
look:
  %k = phi i64 [0, %entry], [%next, %do]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %do, label %out
do:
  %ok = call i1 @{one}(ptr %p, ptr %m, i64 %k)
  %next = add i64 %k, 1
  br i1 %ok, label %look, label %out
out:
  %all = phi i1 [true, %look], [false, %do]
  ret i1 %all
}}
"""


# Functions of Python, and two of NumPy: PyArray_NewFromDescr and PyArray_SetBaseObject.
DECLARED = """
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare i64 @PyDict_Size(ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare ptr @PyDict_New()
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare i32 @PyUnicode_Compare(ptr, ptr)
declare ptr @PyMem_Calloc(i64, i64)
declare void @PyMem_Free(ptr)
declare ptr @PyErr_NoMemory()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare i32 @PyObject_SetAttr(ptr, ptr, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyLong_FromVoidPtr(ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare i32 @PyObject_IsTrue(ptr)
declare ptr @lumjax_new(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare i32 @lumjax_based(ptr, ptr)
"""
PYTHON = re.findall(r"@(Py\w+)", DECLARED)

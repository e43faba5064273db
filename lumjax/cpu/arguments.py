"""The part of the builtin function (see words.py) that takes arguments apart and looks whether they
are what the plan is for. Nothing is changed by it, and none of Python's code runs.
"""

from __future__ import annotations

from lumjax.cpu.words import each

HELPERS = r"""
; drop what the call owns, and its memory
define internal void @release(ptr %p, ptr %m) nounwind {
entry:
  %n = field i64 n.owned
  br label %look
look:
  %k = phi i64 [0, %entry], [%next, %do]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %do, label %out
do:
  %o = word ptr %m, %k
  call void @Py_DecRef(ptr %o)
  %next = add i64 %k, 1
  br label %look
out:
  call void @PyMem_Free(ptr %m)
  ret void
}

; whether a key is the one that is expected: the same object, or an equal str
define internal i1 @equal(ptr %p, ptr %a, ptr %b) nounwind {
entry:
  %is = icmp eq ptr %a, %b
  br i1 %is, label %yes, label %look
look:
  %str = kind str
  %ta = word ptr %a, 1
  %tb = word ptr %b, 1
  %sa = icmp eq ptr %ta, %str
  %sb = icmp eq ptr %tb, %str
  %both = and i1 %sa, %sb
  br i1 %both, label %compare, label %no
compare:
  %order = call i32 @PyUnicode_Compare(ptr %a, ptr %b)
  %same = icmp eq i32 %order, 0
  ret i1 %same
yes:
  ret i1 true
no:
  ret i1 false
}

; whether an argument has the structure of a tree; its leaves become objects of the call.
; No code of Python's runs meanwhile, so that nothing changes what is looked at.
define internal i1 @walk(ptr %p, ptr %m, ptr %node, ptr %o) nounwind {
entry:
  %pos = alloca i64
  %key = alloca ptr
  %value = alloca ptr
  %kind = word i64 %node, 0
  %want = word ptr %node, 1
  %count = word i64 %node, 2
  %leaf = icmp eq i64 %kind, 0
  br i1 %leaf, label %take, label %other
take:
  %number = ptrtoint ptr %want to i64
  %objects = area objects
  keep ptr %o, %objects, %number
  call void @Py_IncRef(ptr %o)
  ret i1 true
other:
  %identity = icmp eq i64 %kind, 1
  br i1 %identity, label %same, label %container
same:
  %is = icmp eq ptr %o, %want
  ret i1 %is
container:
  %type = word ptr %o, 1
  %typed = icmp eq ptr %type, %want
  br i1 %typed, label %which, label %no
which:
  switch i64 %kind, label %no [
    i64 2, label %tuple
    i64 3, label %list
    i64 4, label %dict
  ]
tuple:
  %tuple.n = call i64 @PyTuple_Size(ptr %o)
  %tuple.ok = icmp eq i64 %tuple.n, %count
  br i1 %tuple.ok, label %items, label %no
list:
  %list.n = call i64 @PyList_Size(ptr %o)
  %list.ok = icmp eq i64 %list.n, %count
  br i1 %list.ok, label %items, label %no
dict:
  %dict.n = call i64 @PyDict_Size(ptr %o)
  %dict.ok = icmp eq i64 %dict.n, %count
  store i64 0, ptr %pos
  br i1 %dict.ok, label %items, label %no
items:
  %k = phi i64 [0, %tuple], [0, %list], [0, %dict], [%next, %child]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %item, label %yes
item:
  switch i64 %kind, label %no [
    i64 2, label %of.tuple
    i64 3, label %of.list
    i64 4, label %of.dict
  ]
of.tuple:
  %a = call ptr @PyTuple_GetItem(ptr %o, i64 %k)
  %a.slot = add i64 %k, 3
  br label %child
of.list:
  %b = call ptr @PyList_GetItem(ptr %o, i64 %k)
  %b.slot = add i64 %k, 3
  br label %child
of.dict:
  %some = call i32 @PyDict_Next(ptr %o, ptr %pos, ptr %key, ptr %value)
  %any = icmp ne i32 %some, 0
  br i1 %any, label %named, label %no
named:
  %twice = shl i64 %k, 1
  %key.slot = add i64 %twice, 3
  %expected = word ptr %node, %key.slot
  %given = load ptr, ptr %key
  %match = call i1 @equal(ptr %p, ptr %given, ptr %expected)
  br i1 %match, label %of.key, label %no
of.key:
  %c = load ptr, ptr %value
  %c.slot = add i64 %twice, 4
  br label %child
child:
  %inner = phi ptr [%a, %of.tuple], [%b, %of.list], [%c, %of.key]
  %slot = phi i64 [%a.slot, %of.tuple], [%b.slot, %of.list], [%c.slot, %of.key]
  %below = word ptr %node, %slot
  %next = add i64 %k, 1
  %ok = call i1 @walk(ptr %p, ptr %m, ptr %below, ptr %inner)
  br i1 %ok, label %items, label %no
yes:
  ret i1 true
no:
  ret i1 false
}
"""

INPUTS = (
    r"""
define internal i1 @const(ptr %p, ptr %m, i64 %k) nounwind {
  %consts = field ptr consts
  %objects = area objects
  %o = word ptr %consts, %k
  call void @Py_IncRef(ptr %o)
  keep ptr %o, %objects, %k
  ret i1 true
}
"""
    + each("consts", "n.consts", "const")
    + r"""
define internal i1 @entry(ptr %p, ptr %m, i64 %k) nounwind {
  %source = field ptr table
  %target = area table
  %v = word i64 %source, %k
  keep i64 %v, %target, %k
  ret i1 true
}
"""
    + each("entries", "n.table", "entry")
    + r"""
; where an array's elements are, into its place of the table
define internal void @place(ptr %p, ptr %m, i64 %place, i64 %address) nounwind {
entry:
  %some = icmp sge i64 %place, 0
  br i1 %some, label %do, label %out
do:
  %table = area table
  keep i64 %address, %table, %place
  br label %out
out:
  ret void
}

; whether nothing but one Array knows of the data
define internal i1 @alone(ptr %data) nounwind {
entry:
  %c = load i32, ptr %data
  %one = icmp eq i32 %c, 1
  br i1 %one, label %below, label %no
below:
  %base = word ptr %data, 6
  %none = icmp eq ptr %base, null
  br i1 %none, label %yes, label %look
look:
  %d = load i32, ptr %base
  %also = icmp eq i32 %d, 1
  ret i1 %also
yes:
  ret i1 true
no:
  ret i1 false
}

; whether a number of Python's fits what is expected; it is written where the table says
define internal i1 @number(ptr %p, ptr %m, i64 %k, ptr %row, ptr %o) nounwind {
entry:
  %overflow = alloca i32
  %scalar = word i64 %row, 7
  %type = word ptr %o, 1
  %numbers = area numbers
  %to = getelementptr i64, ptr %numbers, i64 %k
  switch i64 %scalar, label %no [
    i64 1, label %real
    i64 2, label %real
    i64 3, label %integer
    i64 4, label %integer
    i64 5, label %truth
  ]
real:
  %float = kind float
  %is.float = icmp eq ptr %type, %float
  br i1 %is.float, label %read, label %no
read:
  %x = call double @PyFloat_AsDouble(ptr %o)
  %short = icmp eq i64 %scalar, 1
  br i1 %short, label %single, label %double
single:
  %x4 = fptrunc double %x to float
  store float %x4, ptr %to
  br label %yes
double:
  store double %x, ptr %to
  br label %yes
integer:
  %int = kind int
  %is.int = icmp eq ptr %type, %int
  br i1 %is.int, label %count, label %no
count:
  %i = call i64 @PyLong_AsLongLongAndOverflow(ptr %o, ptr %overflow)
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  br i1 %fits, label %narrow, label %no
narrow:
  %i4 = trunc i64 %i to i32
  %i8 = sext i32 %i4 to i64
  %same = icmp eq i64 %i, %i8
  %long = icmp eq i64 %scalar, 4
  %good = or i1 %same, %long
  br i1 %good, label %whole, label %no
whole:
  store i64 %i, ptr %to
  br label %yes
truth:
  %bool = kind bool
  %is.bool = icmp eq ptr %type, %bool
  br i1 %is.bool, label %ask, label %no
ask:
  %t = call i32 @PyObject_IsTrue(ptr %o)
  %t1 = trunc i32 %t to i8
  store i8 %t1, ptr %to
  br label %yes
yes:
  %place = word i64 %row, 4
  %address = ptrtoint ptr %to to i64
  call void @place(ptr %p, ptr %m, i64 %place, i64 %address)
  ret i1 true
no:
  ret i1 false
}

; whether a leaf is what is expected: type, sizes, weakness, in C order and aligned
define internal i1 @input(ptr %p, ptr %m, i64 %k) nounwind {
entry:
  %objects = area objects
  %o = word ptr %objects, %k
  %rows = field ptr inputs
  %row = getelementptr [8 x i64], ptr %rows, i64 %k
  %type = word ptr %o, 1
  %array = kind array
  %ndarray = kind ndarray
  %want.weak = word ptr %row, 3
  %owned = word i64 %row, 5
  %isarray = icmp eq ptr %type, %array
  br i1 %isarray, label %ours, label %theirs
ours:
  %held = word ptr %o, $DATA
  %weak = word ptr %o, $WEAK
  %there = icmp ne ptr %held, null
  %agree = icmp eq ptr %weak, %want.weak
  %usual = and i1 %there, %agree
  br i1 %usual, label %inside, label %no
inside:
  %inner = word ptr %held, 1
  %exact = icmp eq ptr %inner, %ndarray
  br i1 %exact, label %elements, label %no
theirs:
  %isnumpy = icmp eq ptr %type, %ndarray
  br i1 %isnumpy, label %numpy, label %scalar
numpy:
  %strong = call i32 @PyObject_IsTrue(ptr %want.weak)
  %no.weak = icmp eq i32 %strong, 0
  %not.owned = icmp eq i64 %owned, 0
  %lent = and i1 %no.weak, %not.owned
  br i1 %lent, label %elements, label %no
scalar:
  %number = call i1 @number(ptr %p, ptr %m, i64 %k, ptr %row, ptr %o)
  ret i1 %number
elements:
  %data = phi ptr [%held, %inside], [%o, %numpy]
  %dtype = word ptr %data, 7
  %want.dtype = word ptr %row, 0
  %rank.at = getelementptr i8, ptr %data, i64 24
  %rank = load i32, ptr %rank.at
  %want.rank = word i32 %row, 1
  %flags.at = getelementptr i8, ptr %data, i64 64
  %flags = load i32, ptr %flags.at
  %dense = and i32 %flags, 257
  %c1 = icmp eq ptr %dtype, %want.dtype
  %c2 = icmp eq i32 %rank, %want.rank
  %c3 = icmp eq i32 %dense, 257
  %c4 = and i1 %c1, %c2
  %c5 = and i1 %c4, %c3
  br i1 %c5, label %shape, label %no
shape:
  %sizes = word ptr %data, 4
  %want.sizes = word ptr %row, 2
  br label %axis
axis:
  %a = phi i32 [0, %shape], [%a1, %size]
  %left = icmp slt i32 %a, %rank
  br i1 %left, label %size, label %fits
size:
  %a64 = zext i32 %a to i64
  %s = word i64 %sizes, %a64
  %w = word i64 %want.sizes, %a64
  %a1 = add i32 %a, 1
  %equal = icmp eq i64 %s, %w
  br i1 %equal, label %axis, label %no
fits:
  %bit = and i64 %owned, 1
  %asked = icmp ne i64 %bit, 0
  br i1 %asked, label %whose, label %good
whose:
  %alone = call i1 @alone(ptr %data)
  br i1 %alone, label %good, label %no
good:
  %datas = area data
  keep ptr %data, %datas, %k
  call void @Py_IncRef(ptr %data)
  %place = word i64 %row, 4
  %address = word i64 %data, 2
  call void @place(ptr %p, ptr %m, i64 %place, i64 %address)
  ret i1 true
no:
  ret i1 false
}
"""
    + each("inputs", "n.inputs", "input")
    + r"""
; where a leaf is in a table of addresses, or would be
define internal ptr @slot(ptr %p, ptr %m, ptr %o) nounwind {
entry:
  %seen = area seen
  %mask = field i64 hash
  %number = ptrtoint ptr %o to i64
  %high = lshr i64 %number, 4
  %far = lshr i64 %number, 16
  %mixed = xor i64 %high, %far
  br label %look
look:
  %h = phi i64 [%mixed, %entry], [%h1, %used]
  %at = and i64 %h, %mask
  %slot = getelementptr i64, ptr %seen, i64 %at
  %found = load ptr, ptr %slot
  %free = icmp eq ptr %found, null
  br i1 %free, label %out, label %used
used:
  %same = icmp eq ptr %found, %o
  %h1 = add i64 %h, 1
  br i1 %same, label %out, label %look
out:
  ret ptr %slot
}

; whether a donated leaf is no other donated one
define internal i1 @once(ptr %p, ptr %m, i64 %k) nounwind {
entry:
  %donated = field ptr donated
  %number = word i64 %donated, %k
  %objects = area objects
  %o = word ptr %objects, %number
  %slot = call ptr @slot(ptr %p, ptr %m, ptr %o)
  %found = load ptr, ptr %slot
  %new = icmp eq ptr %found, null
  store ptr %o, ptr %slot
  ret i1 %new
}

; whether a leaf that is not donated is no donated one
define internal i1 @apart(ptr %p, ptr %m, i64 %k) nounwind {
entry:
  %rows = field ptr inputs
  %row = getelementptr [8 x i64], ptr %rows, i64 %k
  %owned = word i64 %row, 5
  %kept = icmp ult i64 %owned, 2
  br i1 %kept, label %look, label %yes
look:
  %objects = area objects
  %o = word ptr %objects, %k
  %slot = call ptr @slot(ptr %p, ptr %m, ptr %o)
  %found = load ptr, ptr %slot
  %new = icmp eq ptr %found, null
  ret i1 %new
yes:
  ret i1 true
}
"""
    + each("all.once", "n.donated", "once")
    + each("all.apart", "n.inputs", "apart")
)

GATHER = r"""
; whether the arguments are what the plan is for; then all that running takes of them is at hand
define internal i1 @gather(ptr %p, ptr %m, ptr %args) nounwind {
entry:
  %launches = kind launches
  %watched = call i64 @PyList_Size(ptr %launches)
  %free = icmp eq i64 %watched, 0
  br i1 %free, label %first, label %no
first:
  %trees = field ptr trees
  %n = field i64 roots
  br label %look
look:
  %k = phi i64 [0, %first], [%next, %tree]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %tree, label %leaves
tree:
  %node = word ptr %trees, %k
  %given = word ptr %args, %k
  %next = add i64 %k, 1
  %ok = call i1 @walk(ptr %p, ptr %m, ptr %node, ptr %given)
  br i1 %ok, label %look, label %no
leaves:
  %a = call i1 @consts(ptr %p, ptr %m)
  %b = call i1 @entries(ptr %p, ptr %m)
  %c = call i1 @inputs(ptr %p, ptr %m)
  br i1 %c, label %donated, label %no
donated:
  %some = field i64 n.donated
  %any = icmp ne i64 %some, 0
  br i1 %any, label %once, label %yes
once:
  %d = call i1 @all.once(ptr %p, ptr %m)
  br i1 %d, label %apart, label %no
apart:
  %e = call i1 @all.apart(ptr %p, ptr %m)
  ret i1 %e
yes:
  ret i1 true
no:
  ret i1 false
}
"""

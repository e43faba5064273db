"""The part of the builtin function (see words.py) that runs a program and puts its results
together, and the function itself.
"""

from __future__ import annotations

from lumjax.cpu.words import each

RUNNING = (
    r"""
; an array of memory of its own: NumPy's, or aligned inside of more, or as Python makes it
define internal i1 @fresh(ptr %p, ptr %m, i64 %k) nounwind {
entry:
  %more = alloca i64
  %rows = field ptr fresh
  %row = getelementptr [6 x i64], ptr %rows, i64 %k
  %dtype = word ptr %row, 0
  %rank = word i32 %row, 1
  %sizes = word ptr %row, 2
  %bytes = word i64 %row, 3
  %maker = word ptr %row, 5
  %ndarray = kind ndarray
  %simple = icmp eq ptr %maker, null
  br i1 %simple, label %native, label %python
python:
  %a = call ptr @PyObject_CallNoArgs(ptr %maker)
  br label %made
native:
  %small = icmp eq i64 %bytes, 0
  br i1 %small, label %plain, label %aligned
plain:
  call void @Py_IncRef(ptr %dtype)
  %b = call ptr @lumjax_new(ptr %ndarray, ptr %dtype, i32 %rank, ptr %sizes, ptr null, ptr null,
                            i32 0, ptr null)
  br label %made
aligned:
  %u8 = kind bytes
  %enough = add i64 %bytes, $ALIGN
  store i64 %enough, ptr %more
  call void @Py_IncRef(ptr %u8)
  %raw = call ptr @lumjax_new(ptr %ndarray, ptr %u8, i32 1, ptr %more, ptr null, ptr null, i32 0,
                              ptr null)
  %none = icmp eq ptr %raw, null
  br i1 %none, label %failed, label %view
view:
  %begin = word i64 %raw, 2
  %last = add i64 %begin, $BELOW
  %start = and i64 %last, $MASK
  %data = inttoptr i64 %start to ptr
  call void @Py_IncRef(ptr %dtype)
  %c = call ptr @lumjax_new(ptr %ndarray, ptr %dtype, i32 %rank, ptr %sizes, ptr null, ptr %data,
                            i32 1281, ptr null)
  %lost = icmp eq ptr %c, null
  br i1 %lost, label %drop, label %base
drop:
  call void @Py_DecRef(ptr %raw)
  br label %failed
base:
  %status = call i32 @lumjax_based(ptr %c, ptr %raw)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %undo, label %made
undo:
  call void @Py_DecRef(ptr %c)
  br label %failed
made:
  %array = phi ptr [%a, %python], [%b, %plain], [%c, %base]
  %missing = icmp eq ptr %array, null
  br i1 %missing, label %failed, label %good
good:
  %arrays = area fresh
  keep ptr %array, %arrays, %k
  %place = word i64 %row, 4
  %address = word i64 %array, 2
  call void @place(ptr %p, ptr %m, i64 %place, i64 %address)
  ret i1 true
failed:
  ret i1 false
}
"""
    + each("freshes", "n.fresh", "fresh")
    + r"""
; what only kernels see: a block that Python has, its address, and the places in it
define internal i1 @arena(ptr %p, ptr %m) nounwind {
entry:
  %take = field ptr take
  %none = icmp eq ptr %take, null
  br i1 %none, label %good, label %ask
ask:
  %block = call ptr @PyObject_CallNoArgs(ptr %take)
  %bad = icmp eq ptr %block, null
  br i1 %bad, label %failed, label %have
have:
  %blocks = area block
  keep ptr %block, %blocks, 0
  %name = kind address
  %number = call ptr @PyObject_GetAttr(ptr %block, ptr %name)
  %worse = icmp eq ptr %number, null
  br i1 %worse, label %failed, label %read
read:
  %begin = call ptr @PyLong_AsVoidPtr(ptr %number)
  call void @Py_DecRef(ptr %number)
  %base = ptrtoint ptr %begin to i64
  %rows = field ptr arena
  %n = field i64 n.arena
  br label %look
look:
  %k = phi i64 [0, %read], [%next, %do]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %do, label %good
do:
  %row = getelementptr [2 x i64], ptr %rows, i64 %k
  %place = word i64 %row, 0
  %offset = word i64 %row, 1
  %address = add i64 %base, %offset
  call void @place(ptr %p, ptr %m, i64 %place, i64 %address)
  %next = add i64 %k, 1
  br label %look
good:
  ret i1 true
failed:
  ret i1 false
}

; the kernels: by one native call without the interpreter's lock, or as Python starts them
define internal i1 @kernels(ptr %p, ptr %m) nounwind {
entry:
  %table = area table
  %launch = field ptr launch
  %direct = icmp eq ptr %launch, null
  br i1 %direct, label %count, label %python
count:
  %n = field i64 n.steps
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %native, label %good
native:
  %run = field ptr run
  %steps = field ptr steps
  %lock = call ptr @PyEval_SaveThread()
  %status = call i32 %run(ptr %steps, i64 %n, ptr %table, ptr null, ptr null, i64 0)
  call void @PyEval_RestoreThread(ptr %lock)
  %stopped = icmp ne i32 %status, 0
  br i1 %stopped, label %raise, label %good
raise:
  %again = field ptr raise
  call void %again()
  ret i1 false
python:
  %number = call ptr @PyLong_FromVoidPtr(ptr %table)
  %none = icmp eq ptr %number, null
  br i1 %none, label %failed, label %start
start:
  %result = call ptr @PyObject_CallOneArg(ptr %launch, ptr %number)
  call void @Py_DecRef(ptr %number)
  %bad = icmp eq ptr %result, null
  br i1 %bad, label %failed, label %ran
ran:
  call void @Py_DecRef(ptr %result)
  br label %good
good:
  ret i1 true
failed:
  ret i1 false
}

; a program that Python runs: it is given a list of the data, and returns a list of arrays
define internal i1 @whole(ptr %p, ptr %m, ptr %function) nounwind {
entry:
  %n = field i64 n.inputs
  %datas = area data
  %list = call ptr @PyList_New(i64 %n)
  %none = icmp eq ptr %list, null
  br i1 %none, label %failed, label %look
look:
  %k = phi i64 [0, %entry], [%next, %put]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %put, label %call
put:
  %data = word ptr %datas, %k
  call void @Py_IncRef(ptr %data)
  %s1 = call i32 @PyList_SetItem(ptr %list, i64 %k, ptr %data)
  %next = add i64 %k, 1
  br label %look
call:
  %found = call ptr @PyObject_CallOneArg(ptr %function, ptr %list)
  call void @Py_DecRef(ptr %list)
  %bad = icmp eq ptr %found, null
  br i1 %bad, label %failed, label %results
results:
  %arrays = area fresh
  %count = field i64 n.fresh
  br label %each
each:
  %j = phi i64 [0, %results], [%later, %keep]
  %left = icmp slt i64 %j, %count
  br i1 %left, label %get, label %done
get:
  %array = call ptr @PyList_GetItem(ptr %found, i64 %j)
  %lost = icmp eq ptr %array, null
  br i1 %lost, label %drop, label %keep
keep:
  call void @Py_IncRef(ptr %array)
  keep ptr %array, %arrays, %j
  %later = add i64 %j, 1
  br label %each
drop:
  call void @Py_DecRef(ptr %found)
  br label %failed
done:
  call void @Py_DecRef(ptr %found)
  ret i1 true
failed:
  ret i1 false
}

; run the program
define internal i1 @run(ptr %p, ptr %m) nounwind {
entry:
  %whole = field ptr whole
  %split = icmp eq ptr %whole, null
  br i1 %split, label %allot, label %python
python:
  %a = call i1 @whole(ptr %p, ptr %m, ptr %whole)
  ret i1 %a
allot:
  %b = call i1 @freshes(ptr %p, ptr %m)
  br i1 %b, label %scratch, label %failed
scratch:
  %c = call i1 @arena(ptr %p, ptr %m)
  br i1 %c, label %start, label %failed
start:
  %d = call i1 @kernels(ptr %p, ptr %m)
  ret i1 %d
failed:
  ret i1 false
}
"""
)

RESULTS = (
    r"""
; a result as an Array
define internal i1 @output(ptr %p, ptr %m, i64 %k) nounwind {
entry:
  %rows = field ptr outputs
  %row = getelementptr [4 x i64], ptr %rows, i64 %k
  %kind = word i64 %row, 0
  %number = word i64 %row, 1
  %weak = word ptr %row, 2
  %again = word i64 %row, 3
  %array = kind array
  %made = area made
  switch i64 %kind, label %literal [
    i64 0, label %computed
    i64 1, label %given
  ]
literal:
  %value = inttoptr i64 %number to ptr
  br label %wrap
computed:
  %arrays = area fresh
  %found = word ptr %arrays, %number
  br label %wrap
given:
  %objects = area objects
  %datas = area data
  %o = word ptr %objects, %number
  %data = word ptr %datas, %number
  %type = word ptr %o, 1
  %ours = icmp eq ptr %type, %array
  %once = icmp eq i64 %again, 0
  %maybe = and i1 %ours, %once
  br i1 %maybe, label %look, label %wrap
look:
  %held = word ptr %o, $DATA
  %weakness = word ptr %o, $WEAK
  %same = icmp eq ptr %held, %data
  %agree = icmp eq ptr %weakness, %weak
  %itself = and i1 %same, %agree
  br i1 %itself, label %return, label %wrap
return:
  call void @Py_IncRef(ptr %o)
  keep ptr %o, %made, %k
  ret i1 true
wrap:
  %elements = phi ptr [%value, %literal], [%found, %computed], [%data, %given], [%data, %look]
  %new = call ptr @PyType_GenericAlloc(ptr %array, i64 0)
  %none = icmp eq ptr %new, null
  br i1 %none, label %failed, label %fill
fill:
  %unknown = kind none
  call void @Py_IncRef(ptr %elements)
  keep ptr %elements, %new, $DATA
  call void @Py_IncRef(ptr %weak)
  keep ptr %weak, %new, $WEAK
  call void @Py_IncRef(ptr %unknown)
  keep ptr %unknown, %new, $AVAL
  keep ptr %new, %made, %k
  ret i1 true
failed:
  ret i1 false
}
"""
    + each("results", "n.outputs", "output")
    + r"""
; let go of what was donated: it knows its type, and what became of it
define internal i1 @delete(ptr %p, ptr %m, ptr %gone, i64 %k) nounwind {
entry:
  %places = field ptr donated
  %number = word i64 %places, %k
  %objects = area objects
  %o = word ptr %objects, %number
  %type = word ptr %o, 1
  %array = kind array
  %still = icmp eq ptr %type, %array
  br i1 %still, label %why, label %good
why:
  %reason = call ptr @PyTuple_GetItem(ptr %gone, i64 %k)
  %lost = icmp eq ptr %reason, null
  br i1 %lost, label %failed, label %known
known:
  %none = kind none
  %before = word ptr %o, $AVAL
  %unknown = icmp eq ptr %before, %none
  br i1 %unknown, label %remember, label %let
remember:
  %rows = field ptr inputs
  %row = getelementptr [8 x i64], ptr %rows, i64 %number
  %aval = word ptr %row, 6
  call void @Py_IncRef(ptr %aval)
  keep ptr %aval, %o, $AVAL
  call void @Py_DecRef(ptr %before)
  br label %let
let:
  %data = word ptr %o, $DATA
  call void @Py_IncRef(ptr %reason)
  keep ptr %reason, %o, $DATA
  call void @Py_DecRef(ptr %data)
  %name = kind class
  %deleted = kind deleted
  %status = call i32 @PyObject_SetAttr(ptr %o, ptr %name, ptr %deleted)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failed, label %good
good:
  ret i1 true
failed:
  ret i1 false
}

define internal i1 @donate(ptr %p, ptr %m, ptr %args) nounwind {
entry:
  %n = field i64 n.donated
  %last = field i64 roots
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %given, label %yes
given:
  %gone = word ptr %args, %last
  br label %look
look:
  %k = phi i64 [0, %given], [%next, %do]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %do, label %yes
do:
  %ok = call i1 @delete(ptr %p, ptr %m, ptr %gone, i64 %k)
  %next = add i64 %k, 1
  br i1 %ok, label %look, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; the results in their containers: a new reference
define internal ptr @build(ptr %p, ptr %m, ptr %node) nounwind {
entry:
  %kind = word i64 %node, 0
  %of = word ptr %node, 1
  %count = word i64 %node, 2
  switch i64 %kind, label %list [
    i64 0, label %leaf
    i64 1, label %same
    i64 2, label %tuple
    i64 4, label %dict
  ]
leaf:
  %made = area made
  %number = ptrtoint ptr %of to i64
  %result = word ptr %made, %number
  call void @Py_IncRef(ptr %result)
  ret ptr %result
same:
  call void @Py_IncRef(ptr %of)
  ret ptr %of
tuple:
  %a = call ptr @PyTuple_New(i64 %count)
  br label %begin
list:
  %b = call ptr @PyList_New(i64 %count)
  br label %begin
dict:
  %c = call ptr @PyDict_New()
  br label %begin
begin:
  %all = phi ptr [%a, %tuple], [%b, %list], [%c, %dict]
  %none = icmp eq ptr %all, null
  br i1 %none, label %failed, label %items
items:
  %k = phi i64 [0, %begin], [%next, %done]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %item, label %whole
item:
  %twice = shl i64 %k, 1
  %isdict = icmp eq i64 %kind, 4
  %key.slot = add i64 %twice, 3
  %value.slot = add i64 %twice, 4
  %usual = add i64 %k, 3
  %slot = select i1 %isdict, i64 %value.slot, i64 %usual
  %below = word ptr %node, %slot
  %inner = call ptr @build(ptr %p, ptr %m, ptr %below)
  %bad = icmp eq ptr %inner, null
  br i1 %bad, label %drop, label %put
put:
  switch i64 %kind, label %to.list [
    i64 2, label %to.tuple
    i64 4, label %to.dict
  ]
to.tuple:
  %s1 = call i32 @PyTuple_SetItem(ptr %all, i64 %k, ptr %inner)
  br label %done
to.list:
  %s2 = call i32 @PyList_SetItem(ptr %all, i64 %k, ptr %inner)
  br label %done
to.dict:
  %key = word ptr %node, %key.slot
  %s3 = call i32 @PyDict_SetItem(ptr %all, ptr %key, ptr %inner)
  call void @Py_DecRef(ptr %inner)
  br label %done
done:
  %status = phi i32 [%s1, %to.tuple], [%s2, %to.list], [%s3, %to.dict]
  %next = add i64 %k, 1
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %items, label %drop
drop:
  call void @Py_DecRef(ptr %all)
  ret ptr null
whole:
  %python = icmp eq i64 %kind, 5
  br i1 %python, label %make, label %out
make:
  %node.made = call ptr @PyObject_CallOneArg(ptr %of, ptr %all)
  call void @Py_DecRef(ptr %all)
  ret ptr %node.made
out:
  ret ptr %all
failed:
  ret ptr null
}
"""
)

CALL = r"""
; METH_FASTCALL
define ptr @lumjax_call(ptr %self, ptr %args, i64 %nargs) nounwind {
entry:
  %holder = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %p = word ptr %holder, 2
  %expected = field i64 expected
  %miss = kind miss
  %count = icmp eq i64 %nargs, %expected
  br i1 %count, label %begin, label %not.mine
begin:
  %words = field i64 words
  %m = call ptr @PyMem_Calloc(i64 %words, i64 8)
  %none = icmp eq ptr %m, null
  br i1 %none, label %memory, label %look
memory:
  %null = call ptr @PyErr_NoMemory()
  ret ptr null
look:
  %mine = call i1 @gather(ptr %p, ptr %m, ptr %args)
  br i1 %mine, label %run, label %another
another:
  call void @release(ptr %p, ptr %m)
  br label %not.mine
not.mine:
  call void @Py_IncRef(ptr %miss)
  ret ptr %miss
run:
  %ran = call i1 @run(ptr %p, ptr %m)
  br i1 %ran, label %wrap, label %failed
wrap:
  %wrapped = call i1 @results(ptr %p, ptr %m)
  br i1 %wrapped, label %delete, label %failed
delete:
  %deleted = call i1 @donate(ptr %p, ptr %m, ptr %args)
  br i1 %deleted, label %build, label %failed
build:
  %root = field ptr result
  %result = call ptr @build(ptr %p, ptr %m, ptr %root)
  call void @release(ptr %p, ptr %m)
  ret ptr %result
failed:
  call void @release(ptr %p, ptr %m)
  ret ptr null
}
"""

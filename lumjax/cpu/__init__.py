"""The CPU backend: Kernel IR -> LLVM IR text -> object code -> one native call.

    emit.py      the text emitter: scopes, hoisting, value numbering, loops
    convert.py   how dtypes are stored and computed; casts
    real.py      real functions on float64 lanes; single.py: on float32 lanes; integer.py: integers
    math.py      the table of scalar operations; `supported(op, operand_dtypes, result) -> bool`
    index.py     index expressions: scalar, or base + offset + stride * lane
    memory.py    loads and stores: contiguous, reversed, gathered, masked
    analysis.py  facts about statements; values.py: names, lanes, masks and accumulators
    tile.py      the register-tiled contraction
    render.py    `render(kernel, target) -> str`, `unsupported(kernel) -> str | None`
    objects.py   `host_target() -> Target`, text -> cached object -> loaded addresses
    pool.py      the worker threads and the native loop that runs a program
    arena.py     `empty(shape, dtype)`, `checkout(nbytes)`: 64-byte-aligned recycled memory
    runtime.py   `compile_kernels(kernels, target) -> list[Compiled]`, `Step`, `Program`

From a kernel to a running result::

    target = host_target()
    (compiled,) = compile_kernels([kernel], target)
    # `slots`: where the kernel's buffers, then its sizes, are in the program's table
    program = Program([Step(compiled, slots=(0, 1, 2), sizes={"n": 100})])
    out = empty((100,), np.dtype(np.float32))
    program.run([out.ctypes.data, x.ctypes.data, 100])
"""

"""Reverse mode: `jvp` with the tangents staged (linearize), then that linear jaxpr run backwards (transpose).

Interfaces for records that carry jaxprs (`control/`):

`linearize=` of a record, called by `LinearTrace` when an operand of the primitive depends on a tangent:

    linearize(trace: LinearTrace, args, **params) -> outs

runs with `trace.parent` as the current trace. `trace.is_linear(args[k])` tells which operands depend on a tangent; such a
tracer may only be given to `trace.record(prim, args, params) -> tuple of linear tracers`, which appends one equation that is
linear in its tracers jointly. Everything else is bound as usual, so known outputs and residuals are computed there and then (by a
`call` of the known part, say). `outs` holds known values and tracers returned by `record`. Without the rule the equation is
recorded as it stands and all its outputs are linear.

`transpose=` of a record is `(cts, inputs, **params) -> cts of the inputs` as for any primitive. Wrapped in `MaskAware(rule)`, the
rule gets and returns `Cotangent(value, mask)` objects (None is zero) in place of plain values; a plain rule loses the masks.

Tools for both: `backward(jaxpr, inputs, cts)` below; `grad/nested.py` has `jvp_jaxpr`, `split_jaxpr` (known and linear part of a
jaxpr) and `transpose_call`.
"""

"""Derivatives of the jaxprs that equations carry, as jaxprs: what `control/` builds its rules from.

    jvp_jaxpr(jaxpr, nonzero, force=None) -> JvpJaxpr(jaxpr, consts, nonzero)
        jaxpr: (*consts, *primals, *tangents of inputs where nonzero) -> (*primal outs, *tangents of outs where .nonzero);
        outs where force[k] get a tangent in any case (an explicit zero if need be), except integer outs.
    split_jaxpr(jaxpr, linear, force=None) -> SplitJaxpr(known, consts, linear, outputs, residuals)
        for a jaxpr some of whose inputs are tangents (linear[k]) and which is linear in those:
        known:  (*consts, *known inputs) -> (*outs where not .outputs[k], *residuals)
        linear: (*residuals, *linear inputs) -> (*outs where .outputs[k])
        residuals: their number; a residual that is an input of `known` is output as that very Var.
        outs where force[k] count as linear in any case.
    transpose_call(bind, jaxpr, inputs, cts) -> list of Cotangent | None, one per input
        for `MaskAware` rules of primitives that run one jaxpr once: `inputs[k]` is a value or `Linear(aval)`,
        `bind(jaxpr, args) -> outs` issues the backward program with the same primitive. consts are hoisted.
"""

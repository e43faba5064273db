"""Checks for programs and their derivatives, and Hypothesis strategies that make both.

Needs the `test` extra (hypothesis). Every check raises AssertionError saying what disagreed.

>>> import lumjax.numpy as jnp
>>> check_grads(lambda x: jnp.sum(jnp.sin(x)), (jnp.ones(3),), order=2)
"""

from __future__ import annotations

from lumjax.testing import strategies as strategies
from lumjax.testing.checks import check_adjoint as check_adjoint
from lumjax.testing.checks import check_deterministic as check_deterministic
from lumjax.testing.checks import check_grads as check_grads
from lumjax.testing.checks import check_jit as check_jit
from lumjax.testing.checks import check_linearity as check_linearity
from lumjax.testing.checks import check_remat as check_remat
from lumjax.testing.checks import check_vmap as check_vmap
from lumjax.testing.checks import ulp_error as ulp_error
from lumjax.testing.claims import check_program as check_program
from lumjax.testing.minify import minify as minify
from lumjax.testing.oracle import check_jax as check_jax
from lumjax.testing.plans import check_plans as check_plans
from lumjax.testing.programs import Program as Program
from lumjax.testing.rewrites import check_rewrites as check_rewrites
from lumjax.testing.sizes import check_dynamic as check_dynamic
from lumjax.testing.slopes import derivatives as derivatives
from lumjax.testing.strategies import gradient_property as gradient_property

"""Random numbers from explicit keys, equal to JAX's on the same key (threefry2x32, partitionable).

`key(seed)` makes a typed key, `PRNGKey(seed)` an old-style one (uint32[2]); both work everywhere.
Bits, split, fold_in, randint, uniform, bernoulli and permutation are bit-identical to JAX's; the
other distributions use JAX's algorithms and agree within a few units in the last place.

>>> from lumjax import random
>>> random.uniform(random.key(0), (2,)).shape
(2,)
"""

from __future__ import annotations

# ruff: noqa: F401, I001
# pyright: reportUnusedImport=false
# fmt: off
from lumjax.random.choices import categorical, choice, permutation, shuffle
from lumjax.random.core import (
    PRNGKey, bernoulli, bits, cauchy, clone, exponential, fold_in, gumbel, key, key_data,
    key_impl, laplace, logistic, normal, rademacher, randint, split, truncated_normal, uniform,
    wrap_key_data,
)
from lumjax.random.continuous import (
    ball, double_sided_maxwell, generalized_normal, lognormal, maxwell, multivariate_normal,
    orthogonal, pareto, rayleigh, triangular, wald, weibull_min,
)
from lumjax.random.gamma import (
    beta, chisquare, dirichlet, f, gamma, loggamma, t,
)
from lumjax.random.counts import (
    binomial, geometric, multinomial, poisson,
)
# fmt: on

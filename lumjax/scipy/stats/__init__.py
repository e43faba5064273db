"""Distributions under scipy.stats' names."""

from __future__ import annotations

from lumjax.scipy.stats import beta as beta
from lumjax.scipy.stats import chi2 as chi2
from lumjax.scipy.stats import dirichlet as dirichlet
from lumjax.scipy.stats import gamma as gamma
from lumjax.scipy.stats import multivariate_normal as multivariate_normal
from lumjax.scipy.stats import norm as norm
from lumjax.scipy.stats import poisson as poisson
from lumjax.scipy.stats import t as t

__all__ = ["beta", "chi2", "dirichlet", "gamma", "multivariate_normal", "norm", "poisson", "t"]

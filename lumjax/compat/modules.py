"""Which module of lumjax stands for which module of JAX."""

from __future__ import annotations

VERSION = "0.10.2"  # the JAX whose behaviour lumjax has

# Modules that have JAX's name and place.
_SAME = (
    "ad_checkpoint", "core", "custom_derivatives", "debug", "distributed", "dlpack", "dtypes",
    "errors", "experimental", "experimental.layout", "experimental.mesh_utils",
    "experimental.multihost_utils", "experimental.pjit", "experimental.shard_map", "extend",
    "extend.core",
    "extend.linear_util", "extend.source_info_util", "flatten_util", "image",
    "lax", "lax.linalg", "monitoring", "nn", "nn.initializers", "numpy", "numpy.fft",
    "numpy.linalg", "ops", "profiler", "random", "scipy", "scipy.fft", "scipy.linalg",
    "scipy.ndimage", "scipy.signal", "scipy.sparse",
    "scipy.sparse.linalg", "scipy.special", "scipy.stats", "scipy.stats.beta", "scipy.stats.chi2",
    "scipy.stats.dirichlet", "scipy.stats.gamma", "scipy.stats.multivariate_normal",
    "scipy.stats.norm", "scipy.stats.poisson", "scipy.stats.t", "sharding", "tree", "tree_util",
    "typing",
)  # fmt: skip

# Modules of JAX's inside that libraries import, and public ones that only they need.
_INSIDE = {
    "_src": "compat.internals",
    "_src.core": "core",
    "_src.dispatch": "compat.internals.dispatch",
    "_src.dtypes": "compat.internals.dtypes",
    "_src.checkify": "experimental.checkify",
    "_src.state.types": "compat.internals.refs",
    "_src.tree_util": "compat.internals.trees",
    "_src.traceback_util": "extend.source_info_util",
    "api_util": "compat.api_util",
    "export": "compat.export",
    "experimental.hijax": "compat.internals.refs",
    "ref": "compat.internals.refs",
    "interpreters": "compat.interpreters",
    "interpreters.ad": "compat.interpreters.ad",
    "interpreters.batching": "compat.interpreters.batching",
    "interpreters.mlir": "compat.interpreters.mlir",
    "interpreters.partial_eval": "compat.interpreters.partial_eval",
    "stages": "compat.stages",
    "test_util": "compat.test_util",
}

MODULES: dict[str, str] = {
    "jax": "lumjax.compat.top",
    "jax._src.state": "lumjax.compat.internals.refs",
    **{f"jax.{name}": f"lumjax.{target}" for name, target in _INSIDE.items()},
    "jax.version": "lumjax.compat.version",
    "jaxlib": "lumjax.compat.jaxlib",
    "jaxlib.version": "lumjax.compat.version",
    **{f"jax.{name}": f"lumjax.{name}" for name in _SAME},
}

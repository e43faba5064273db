"""Which module of lumjax stands for which module of JAX."""

from __future__ import annotations

VERSION = "0.10.2"  # the JAX whose behaviour lumjax has

# Modules that have JAX's name and place.
_SAME = (
    "ad_checkpoint", "core", "custom_derivatives", "debug", "distributed", "dlpack", "dtypes",
    "errors", "experimental", "experimental.mesh_utils", "experimental.multihost_utils",
    "experimental.pjit", "experimental.shard_map", "extend", "extend.core", "flatten_util", "image",
    "lax", "lax.linalg", "monitoring", "nn", "nn.initializers", "numpy", "numpy.fft",
    "numpy.linalg", "profiler", "random", "scipy", "scipy.fft", "scipy.linalg", "scipy.special",
    "scipy.stats", "scipy.stats.norm", "sharding", "tree", "tree_util", "typing",
)  # fmt: skip

MODULES: dict[str, str] = {
    "jax": "lumjax.compat.top",
    "jax.test_util": "lumjax.compat.test_util",
    "jax.version": "lumjax.compat.version",
    "jaxlib": "lumjax.compat.jaxlib",
    "jaxlib.version": "lumjax.compat.version",
    **{f"jax.{name}": f"lumjax.{name}" for name in _SAME},
}

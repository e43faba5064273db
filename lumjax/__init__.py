"""lumjax: write NumPy-style functions, transform them with grad, vmap and jit.

>>> import lumjax
>>> import lumjax.numpy as jnp
>>> lumjax.grad(lambda x: jnp.sum(x**2))(jnp.array([1.0, 2.0]))
Array([2., 4.], dtype=float32)
"""

from __future__ import annotations

# ruff: noqa: I001
# fmt: off
import typing as _typing

from lumjax import (
    errors as errors,
    numpy as numpy,
    tree as tree,
    typing as typing,
)
from lumjax.compile import clear_caches as clear_caches
from lumjax.decorator import jit as jit
from lumjax.config import config as config, enable_x64 as enable_x64
from lumjax.control.custom import custom_jvp as custom_jvp, custom_vjp as custom_vjp
from lumjax.dtype import float0 as float0
from lumjax.dynamic import dim as dim
from lumjax.explain import explain as explain
from lumjax.grad.forward import jvp as jvp
from lumjax.grad.reverse import grad as grad, value_and_grad as value_and_grad
from lumjax.lazy import later as _later
from lumjax.trace.batch import vmap as vmap
from lumjax.typing import Array as Array

__version__ = "0.1.0"
__version_info__ = (0, 1, 0)


if _typing.TYPE_CHECKING:  # these are loaded when they are first mentioned
    from lumjax import (
        ad_checkpoint as ad_checkpoint,
        compat as compat,
        core as core,
        custom_derivatives as custom_derivatives,
        debug as debug,
        distributed as distributed,
        dlpack as dlpack,
        dtypes as dtypes,
        experimental as experimental,
        extend as extend,
        flatten_util as flatten_util,
        image as image,
        lax as lax,
        monitoring as monitoring,
        nn as nn,
        optim as optim,
        profiler as profiler,
        random as random,
        scipy as scipy,
        sharding as sharding,
        testing as testing,
        train as train,
        tree_util as tree_util,
    )
    from lumjax.ad_checkpoint import (
        checkpoint as checkpoint,
        checkpoint_name as checkpoint_name,
        checkpoint_policies as checkpoint_policies,
        remat as remat,
    )
    from lumjax.api import (
        ClosedJaxpr as ClosedJaxpr,
        ShapeDtypeStruct as ShapeDtypeStruct,
        ensure_compile_time_eval as ensure_compile_time_eval,
        eval_shape as eval_shape,
        make_jaxpr as make_jaxpr,
        named_call as named_call,
        named_scope as named_scope,
    )
    from lumjax.control.debug import pure_callback as pure_callback
    from lumjax.cuda.doctor import doctor as doctor
    from lumjax.custom_derivatives import (
        closure_convert as closure_convert,
        custom_gradient as custom_gradient,
    )
    from lumjax.grad.jacobian import (
        hessian as hessian,
        jacfwd as jacfwd,
        jacobian as jacobian,
        jacrev as jacrev,
    )
    from lumjax.grad.linear import (
        linear_transpose as linear_transpose,
        linearize as linearize,
        vjp as vjp,
    )
    from lumjax.machine import (
        block_until_ready as block_until_ready,
        default_backend as default_backend,
        device_count as device_count,
        device_get as device_get,
        device_put as device_put,
        devices as devices,
        effects_barrier as effects_barrier,
        local_device_count as local_device_count,
        local_devices as local_devices,
        process_count as process_count,
        process_index as process_index,
    )
    from lumjax.parallel import (
        check_tracer_leaks as check_tracer_leaks,
        checking_leaks as checking_leaks,
        debug_infs as debug_infs,
        debug_key_reuse as debug_key_reuse,
        debug_nans as debug_nans,
        default_device as default_device,
        default_matmul_precision as default_matmul_precision,
        disable_jit as disable_jit,
        explain_cache_misses as explain_cache_misses,
        log_compiles as log_compiles,
        make_array_from_callback as make_array_from_callback,
        make_array_from_process_local_data as make_array_from_process_local_data,
        make_array_from_single_device_arrays as make_array_from_single_device_arrays,
        numpy_dtype_promotion as numpy_dtype_promotion,
        numpy_rank_promotion as numpy_rank_promotion,
        pmap as pmap,
        transfer_guard as transfer_guard,
        typeof as typeof,
    )
    from lumjax.sharding import (
        Device as Device,
        NamedSharding as NamedSharding,
        P as P,
        make_mesh as make_mesh,
        reshard as reshard,
        set_mesh as set_mesh,
    )
    from lumjax.experimental.shard_map import (
        shard_map as shard_map,
    )
    from lumjax.exporting import (
        export as export,
    )

_LATER = (
    "ad_checkpoint", "compat", "core", "custom_derivatives", "debug", "distributed", "dlpack",
    "dtypes", "experimental", "extend", "flatten_util", "image", "lax", "monitoring", "nn",
    "optim", "profiler", "random", "scipy", "sharding", "testing", "train", "tree_util",
)
_NAMES = {  # in which module a name is
    "ad_checkpoint": ("checkpoint", "checkpoint_name", "checkpoint_policies", "remat"),
    "api": ("ClosedJaxpr", "ShapeDtypeStruct", "ensure_compile_time_eval", "eval_shape",
        "make_jaxpr", "named_call", "named_scope",),
    "control.debug": ("pure_callback",),
    "cuda.doctor": ("doctor",),
    "custom_derivatives": ("closure_convert", "custom_gradient"),
    "grad.jacobian": ("hessian", "jacfwd", "jacobian", "jacrev"),
    "grad.linear": ("linear_transpose", "linearize", "vjp"),
    "machine": ("block_until_ready", "default_backend", "device_count", "device_get", "device_put",
        "devices", "effects_barrier", "local_device_count", "local_devices", "process_count",
        "process_index",),
    "parallel": ("check_tracer_leaks", "checking_leaks", "debug_infs", "debug_key_reuse",
        "debug_nans", "explain_cache_misses", "log_compiles", "default_device",
        "default_matmul_precision", "disable_jit", "make_array_from_callback",
        "make_array_from_process_local_data",
        "make_array_from_single_device_arrays", "numpy_dtype_promotion", "numpy_rank_promotion",
        "pmap", "transfer_guard", "typeof",),
    "sharding": ("Device", "NamedSharding", "P", "make_mesh", "reshard", "set_mesh",),
    "experimental.shard_map": ("shard_map",),
    "exporting": ("export",),
}

__getattr__, __dir__ = _later(globals(), _LATER, _NAMES)

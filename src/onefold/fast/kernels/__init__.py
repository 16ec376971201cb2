"""Triton kernels for a normalisation with members: each reads its activations once.

Activations are `[M * B, C, ...]` with the channels innermost in memory, seen here as `[M, rows, C]`: rows are pixels,
and the members lie one after another. Sums are in float32, for each member and channel. Factors come as offsets from
one. What the kernels compute is written down once more, in torch, in `passes.py`.
"""

from onefold.fast.kernels.moments import (
    moments_kernel,
    own_moments_kernel,
    sums_kernel,
)
from onefold.fast.kernels.rest import (
    rest_gradient_kernel,
    rest_kernel,
)
from onefold.fast.kernels.scale import (
    scaled_gradient_kernel,
    scaled_sum_kernel,
)
from onefold.fast.kernels.training import (
    affine_kernel,
    gradient_kernel,
    gradient_sums_kernel,
    gradient_table_kernel,
)

__all__ = [
    "affine_kernel",
    "gradient_kernel",
    "gradient_sums_kernel",
    "gradient_table_kernel",
    "moments_kernel",
    "own_moments_kernel",
    "rest_gradient_kernel",
    "rest_kernel",
    "scaled_gradient_kernel",
    "scaled_sum_kernel",
    "sums_kernel",
]

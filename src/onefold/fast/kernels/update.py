"""The update of many parameters by one kernel, whose programs find theirs in a table of addresses."""

from __future__ import annotations

import triton.language as tl

from onefold.fast.kernels.compiled import jit, wait_for_inputs


@jit
def sgd_kernel(
    table, rate, count, decay, momentum, NESTEROV: tl.constexpr, TENSORS: tl.constexpr, NUMBERS: tl.constexpr
):
    """g += decay p; m = momentum m + g; p -= rate (g + momentum m), or rate m without Nesterov.

    table `[6, count]`: addresses of p and m in float32 and of g, how many numbers they have, whether g is in bf16, and
    the first program of each.
    """
    program = tl.program_id(0)
    t = tl.arange(0, TENSORS)
    begun = tl.load(table + 5 * count + t, mask=t < count, other=1 << 62) <= program
    own = table + tl.sum(begun.to(tl.int32), 0) - 1
    p = tl.load(own).to(tl.pointer_type(tl.float32))
    m = tl.load(own + count).to(tl.pointer_type(tl.float32))
    g = tl.load(own + 2 * count)
    numbers, rounded = tl.load(own + 3 * count), tl.load(own + 4 * count)
    at = (program - tl.load(own + 5 * count)) * NUMBERS + tl.arange(0, NUMBERS)
    here = at < numbers
    wait_for_inputs()  # the table is as it was when the graph was made
    value, velocity = tl.load(p + at, mask=here, other=0.0), tl.load(m + at, mask=here, other=0.0)
    if rounded != 0:
        slope = tl.load(g.to(tl.pointer_type(tl.bfloat16)) + at, mask=here, other=0.0).to(tl.float32)
    else:
        slope = tl.load(g.to(tl.pointer_type(tl.float32)) + at, mask=here, other=0.0)
    slope += decay * value
    velocity = momentum * velocity + slope
    tl.store(m + at, velocity, mask=here)
    step = slope + momentum * velocity if NESTEROV else velocity
    tl.store(p + at, value - tl.load(rate) * step, mask=here)

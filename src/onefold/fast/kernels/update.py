"""The update of many parameters by one kernel, whose programs find theirs in a table of addresses."""

from __future__ import annotations

import triton.language as tl

from onefold.fast.kernels.compiled import jit, wait_for_inputs


@jit
def sgd_kernel(
    table, rate, count, decay, momentum, NESTEROV: tl.constexpr, TENSORS: tl.constexpr, NUMBERS: tl.constexpr
):
    """g += decay p; m = momentum m + g; p -= rate (g + momentum m), or rate m without Nesterov.

    table `[7, count]`: addresses of p and m in float32 and of g, how many numbers they have, whether g is in bf16,
    whether all three can be read four numbers at a time, and the first program of each.
    """
    wait_for_inputs()
    program = tl.program_id(0)
    t = tl.arange(0, TENSORS)
    begun = tl.load(table + 6 * count + t, mask=t < count, other=1 << 62) <= program
    own = table + tl.sum(begun.to(tl.int32), 0) - 1
    p, m, g = tl.load(own), tl.load(own + count), tl.load(own + 2 * count)
    numbers, rounded, by_four = tl.load(own + 3 * count), tl.load(own + 4 * count), tl.load(own + 5 * count)
    at = (program - tl.load(own + 6 * count)) * NUMBERS + tl.arange(0, NUMBERS)
    rate = tl.load(rate)
    if by_four != 0:
        updated(p, m, g, at, numbers, rounded, rate, decay, momentum, NESTEROV, True)
    else:
        updated(p, m, g, at, numbers, rounded, rate, decay, momentum, NESTEROV, False)


@jit
def updated(p, m, g, at, numbers, rounded, rate, decay, momentum, NESTEROV: tl.constexpr, BY_FOUR: tl.constexpr):
    p, m = p.to(tl.pointer_type(tl.float32)), m.to(tl.pointer_type(tl.float32))
    wide, narrow = g.to(tl.pointer_type(tl.float32)), g.to(tl.pointer_type(tl.bfloat16))
    here = at < numbers
    if BY_FOUR:
        p, m, here = tl.multiple_of(p, 16), tl.multiple_of(m, 16), tl.max_constancy(here, 4)
        wide, narrow = tl.multiple_of(wide, 16), tl.multiple_of(narrow, 16)
    value, velocity = tl.load(p + at, mask=here, other=0.0), tl.load(m + at, mask=here, other=0.0)
    if rounded != 0:
        slope = tl.load(narrow + at, mask=here, other=0.0).to(tl.float32)
    else:
        slope = tl.load(wide + at, mask=here, other=0.0)
    slope += decay * value
    velocity = momentum * velocity + slope
    tl.store(m + at, velocity, mask=here)
    step = slope + momentum * velocity if NESTEROV else velocity
    tl.store(p + at, value - rate * step, mask=here)

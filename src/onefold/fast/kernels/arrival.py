"""Lets the last program of a kernel to arrive finish the work of all of them, which saves a second kernel."""

from __future__ import annotations

import triton.language as tl

from onefold.fast.kernels.compiled import jit


@jit
def last_to_arrive(counter, programs):
    """Whether all other programs have arrived, so that what they stored can be read.

    The counter is zero before and afterwards. Values stored by other programs must be read past the L1 cache
    (`cache_modifier=".cg"`).
    """
    tl.debug_barrier()  # all threads of this program have stored their values before it arrives
    last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == programs - 1
    tl.store(counter, 0, mask=last)
    return last

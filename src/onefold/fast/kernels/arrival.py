"""The last program of a kernel finishes what all of them have begun, so that no second kernel has to."""

from __future__ import annotations

import triton.language as tl

from onefold.fast.kernels.compiled import jit


@jit
def last_to_arrive(counter, programs):
    """Whether all others of so many programs have been here, and what they stored can be read.

    The counter stands at zero before and afterwards. Values of other programs have to be read past the nearest cache
    (`cache_modifier=".cg"`).
    """
    tl.debug_barrier()  # whatever the threads of this program have stored comes before its arrival
    last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == programs - 1
    tl.store(counter, 0, mask=last)
    return last

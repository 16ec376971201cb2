"""Triton kernels for a normalisation with members: each reads its activations once.

Activations are `[M * B, C, ...]` with the channels innermost in memory, seen here as `[M, rows, C]`: rows are pixels,
and the members lie one after another. Sums are in float32, for each member and channel. Factors come as offsets from
one. What the kernels compute is written down once more, in torch, in `fast/passes.py`; `launch.py` has a function for
each of those passes.
"""

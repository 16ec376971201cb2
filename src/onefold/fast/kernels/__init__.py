"""Triton kernels for a normalisation with members: each reads its activations once.

Activations are `[M, rows, C]` to them (`fast/layout.py`), factors `[M, C]` offsets from one. Sums are in float32, for
each member and channel. What the kernels compute is written down once more, in torch, in `fast/passes.py`; `launch.py`
has a function for each of those passes.
"""

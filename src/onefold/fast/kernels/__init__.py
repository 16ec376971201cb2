"""Triton kernels for a normalisation with members: each reads its activations once.

To them, activations are `[M, rows, C]` (`fast/layout.py`) and factors are offsets from one `[M, C]`. Sums are in
float32, for each member and channel. `fast/passes.py` describes in torch what the kernels compute; `launch.py` has a
function for each of those passes.
"""

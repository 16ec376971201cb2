"""The fast path: a network's forward and backward pass in as few kernels as the mathematics allows.

From the outside in: `network.py` makes a network fast; `rewrite.py` changes its graph with the help of `graph.py`. What
it inserts are differentiable functions. `normalize.py` and `scale.py` consist of the passes in `passes.py`, which
`kernels/` implements on a GPU; `convolve.py` lets `conv_kernels.py` choose between cuDNN and `few_channels.py`.
`fold_norms.py` is for inference-only networks, `streams.py` for concurrent parts of a step, `across.py` for processes
that share a batch, `crop.py` for making the batch, `interior_point.py` for AE-KD's weights, and `ahead.py` for
compiling kernels in parallel at start-up.
"""

"""Fast passes: a network's forward and backward pass in as few kernels as the mathematics allows.

From the outside in: `network.py` makes a network fast; `rewrite.py` changes its graph, which `graph.py` reads. What it
puts there are differentiable functions. `normalize.py` and `scale.py` consist of the passes of `passes.py`, which are
made by `kernels/` on a GPU; `convolve.py` has `conv_kernels.py` choose between cuDNN and `few_channels.py`.
`fold_norms.py` is for networks that only answer, `streams.py` for what runs side by side, `across.py` for processes
that share a batch, `crop.py` for the batch itself, `interior_point.py` for AE-KD's weights, `ahead.py` for a start-up
that does not compile kernels one by one.
"""

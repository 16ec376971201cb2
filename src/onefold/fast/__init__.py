"""Fast passes: a network's forward and backward pass in as few kernels as the mathematics allows."""

"""The optimizer, its schedule, and the moving average of the weights."""

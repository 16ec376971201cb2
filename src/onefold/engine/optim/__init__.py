"""The optimizer, its schedule, and the average of the weights."""

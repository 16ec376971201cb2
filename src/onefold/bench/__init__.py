"""The cost of a step, with passes and FLOPs counted and time and memory measured, and an estimate for a whole run."""

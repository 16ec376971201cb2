"""What a step takes: passes, arithmetic, memory, and how many runs a device has room for."""

"""What a step costs: passes, arithmetic and memory; and how many runs fit on a device."""

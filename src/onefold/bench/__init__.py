"""What a step costs: passes and arithmetic by counting, time and memory by measuring, and what a run will take."""

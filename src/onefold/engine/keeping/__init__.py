"""What outlives a process: checkpoints, the best weights and logs, and the threads that write them."""

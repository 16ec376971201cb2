"""What outlasts a process: checkpoints, the best weights, logs, and the thread that writes them."""

"""PyTorch: the world of processes, random states, snapshots, and `train`, an entrypoint to run or to copy."""

"""The training loop, its checkpoints, metrics and evaluation."""

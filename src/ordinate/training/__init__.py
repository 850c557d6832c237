"""The training loop, its checkpoints and its measurements."""

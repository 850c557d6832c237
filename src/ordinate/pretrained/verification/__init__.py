"""Compare a checkpoint in Ordinate and in transformers, check by check."""

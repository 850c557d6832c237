"""What probes have in common: how texts are presented, what is done to them, and what it costs a model."""

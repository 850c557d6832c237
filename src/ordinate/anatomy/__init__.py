"""How a probe finds its way inside a model: what subjects share."""

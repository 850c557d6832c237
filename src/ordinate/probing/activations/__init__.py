"""Activations by the names of TransformerLens: record them, replace them, ablate them, in any attached model."""

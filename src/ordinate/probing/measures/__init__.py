"""Measures shared by the probes: samples, interventions on inputs and activations, and their effects."""

"""Shared machinery of the model adapters: locating layers and attention, hooks, and weight extraction."""

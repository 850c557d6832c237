"""Families of published models that load as Ordinate models, one per file."""

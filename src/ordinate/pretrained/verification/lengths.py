"""Lengths at which the positions of a model end or change."""

from ordinate.models.shape import Shape
from ordinate.schemes._scheme import Scheme
from ordinate.schemes.rope import Rope


def changing_length(shape: Shape) -> int | None:
    """Return the length beyond which a scheme of the model changes; None: no scheme does [tokens]."""
    spectra = [scheme.spectrum for scheme in schemes(shape) if isinstance(scheme, Rope)]
    lengths = [getattr(spectrum, "trained_length", None) for spectrum in spectra if spectrum.length_thresholds != ()]
    return next((length for length in lengths if length), None)


def table_length(shape: Shape) -> int | None:
    """Return how many positions the model has; None: any number [tokens]."""
    lengths = [limit for scheme in schemes(shape) if isinstance(limit := scheme.max_length, int)]
    return min(lengths, default=None)


def schemes(shape: Shape) -> list[Scheme]:
    """Return the schemes of a model."""
    return list(shape.make_schemes().schemes)

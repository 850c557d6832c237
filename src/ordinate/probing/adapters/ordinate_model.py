"""Adapter of Ordinate models."""

from ordinate.probing.instrumentation.ordinate_hooks import HookedOrdinateModel


class OrdinateModel(HookedOrdinateModel):
    """Adapter of an Ordinate model; an encoder-decoder is probed in its encoder."""

    priority = 0

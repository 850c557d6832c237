"""Schemes built for plots by their specification; `_plot_data` computes what is plotted."""

from ordinate.schemes._plot_data import PLOT_SIZES
from ordinate.schemes._scheme import Scheme
from ordinate.schemes._spec import SchemeSpec


def build_scheme(text: str) -> Scheme:
    """Build the first layer's scheme of a specification such as `rope+alibi`, with the sizes used for plots."""
    entries = SchemeSpec(text).entries
    return SchemeSpec(entries[0]).build(PLOT_SIZES).schemes[0]

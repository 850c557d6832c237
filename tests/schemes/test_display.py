"""Schemes and placed schemes in a notebook."""

import re
from xml.etree import ElementTree

import pytest
import torch

from ordinate import Geometry
from ordinate.core import catalog
from ordinate.schemes import T5, Alibi, NoPosition, Rope, Scheme, Swin
from ordinate.schemes._plots import build_scheme

SCHEMES = catalog.names("ordinate.schemes")


# in tier 1 the gallery draws every scheme
@pytest.mark.extended
@pytest.mark.parametrize("name", [*SCHEMES, "rope+alibi", "rope/alibi"])
def test_every_scheme_shows_itself(name):
    shown = build_scheme(name)._repr_html_()
    ElementTree.fromstring(shown)
    assert ("<svg" in shown) == (name != "none")
    assert "not plotted" not in shown


def test_options_and_sizes_of_the_instance_are_shown():
    assert "Rope(head_width=64, theta=500000.0" in Rope(head_width=64, theta=5e5)._repr_html_()
    shown = Alibi(heads=3)._repr_html_()
    assert "head 2" in shown
    assert "head 3" not in shown
    assert "adds nothing" in NoPosition()._repr_html_()
    double = T5(heads=2).double()
    assert "<svg" in double._repr_html_()
    torch.nn.init.constant_(double.table, 7.0)
    assert ">7<" in double._repr_html_()


def test_a_scheme_that_cannot_be_plotted_says_so_in_place_of_failing():
    shown = Swin(heads=2, rows=3, columns=3)._repr_html_()
    assert "<svg" not in shown
    assert "not plotted: " in shown


def test_a_scheme_of_ones_own_is_escaped():
    class Own(Scheme):
        shift_invariant = True

        def extra_repr(self):
            return "<script>"

    assert "<script>" not in Own()._repr_html_()


def test_a_placed_scheme_shows_the_scheme_and_who_sees_whom():
    shown = Alibi(heads=2).at(Geometry.causal(5))._repr_html_()
    assert len(re.findall("<svg", shown)) == 3
    assert "Geometry(queries=5, keys=5, causal)" in shown

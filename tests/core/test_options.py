"""Options of schemes and mixers: numbers of NumPy, and what repr shows."""

import json
from dataclasses import asdict
from typing import get_args

import numpy as np
import pytest

from ordinate import Decoder, Geometry, Shape
from ordinate.core import catalog
from ordinate.core.option_values import read_value
from ordinate.mixers import Softmax
from ordinate.mixers._mixer import Mixer
from ordinate.schemes import Alibi, Deberta, Kerple, Rope
from ordinate.schemes._scheme import Scheme
from ordinate.schemes._spec import SchemeSpec
from ordinate.spectra import Linear


@pytest.mark.parametrize("whole", [np.int64, np.int32, np.uint8])
def test_sizes_may_be_numbers_of_numpy(whole, untyped):
    scheme, mixer = Rope(head_width=whole(8), theta=np.float64(500.0)), Softmax(width=whole(32), heads=whole(4))
    assert (type(scheme.head_width), scheme.head_width) == (int, 8)
    assert type(mixer.width) is int
    assert Geometry.causal(whole(5), window=whole(3)).shape == (5, 5)
    shape = Shape(vocabulary=whole(50), width=whole(32), layers=whole(1), heads=whole(2), dropout=np.float32(0.5))
    assert json.loads(json.dumps(asdict(shape)))["width"] == 32


def test_numbers_of_numpy_are_checked_as_others(untyped):
    with pytest.raises(ValueError, match="option head_width of Rope must be int"):
        Rope(head_width=np.float64(8))
    with pytest.raises(ValueError, match="rope needs an even head width; got 7"):
        Rope(head_width=np.int64(7))


def test_a_scheme_shows_its_options():
    assert repr(Rope(head_width=64)) == "Rope(head_width=64, theta=10000.0, layout='half')"
    assert "factor=4.0" in repr(Rope(head_width=8, spectrum=Linear(factor=4.0)))
    assert repr(Alibi(heads=8)).startswith("Alibi(heads=8, rule='paper'")
    assert repr(Softmax(width=32, heads=4)).splitlines()[1].strip() == "width=32, heads=4, dropout=0.0"


def test_a_placed_scheme_shows_the_scheme_and_the_sizes():
    at = Rope(head_width=8).at(Geometry.causal(2, cached=3))
    assert repr(at) == "Placed(Rope(head_width=8, theta=10000.0, layout='half'), queries=2, keys=5)"


def test_the_default_of_a_size_is_kept():
    class Sized(Kerple):
        def __init__(self, *, heads: int = 4) -> None:
            super().__init__(heads=heads)
            del self.heads

    assert Sized().heads == 4


def test_none_can_be_written_where_the_usual_value_is_another():
    sizes = {"width": 16, "heads": 2, "head_width": 8}
    for spec in (SchemeSpec.of(Deberta(**sizes, buckets=None), sizes), "deberta:buckets=none"):
        shape = Shape(vocabulary=5, width=16, heads=2, layers=1, scheme=str(spec))
        assert "buckets=none" in shape.scheme
        assert Decoder(shape).schemes[0].buckets is None


def test_a_text_that_may_be_none_is_no_text_called_none():
    """`none` is read as a text where an option takes texts, so no such option has another usual value."""
    for package, kind in (("schemes", Scheme), ("mixers", Mixer)):
        for name in catalog.names(f"ordinate.{package}"):
            for option in catalog.options(catalog.load(f"ordinate.{package}", kind, name)).values():
                if type(None) in get_args(option.annotation) and option.default not in (None, option.empty):
                    assert read_value(option.annotation, "none") is None

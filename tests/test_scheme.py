"""What every scheme gets from the contract: its options checked, its sizes kept."""

from typing import Literal

import pytest
import torch

from ordinate import Scheme

pytestmark = pytest.mark.usefixtures("untyped")


class Asks(Scheme):
    """Checks nothing itself."""

    shift_invariant = True

    def __init__(self, *, heads: int, form: Literal["plain", "fine"] = "plain", rate: float = 1.0, words=None):
        super().__init__()
        self.form, self.rate = form, 1 / rate


class AsksMore(Asks):
    """Another on top of it."""

    def __init__(self, *, width: int | None = None, **others):
        super().__init__(**others)
        self.width = 3


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"form": "fin"},
            r"option form of Asks must be typing.Literal\['plain', 'fine'\]; got 'fin'; input should be",
        ),
        ({"form": None}, "option form of Asks must be .*; got None"),
        ({"heads": 4.0}, "option heads of Asks must be int; got 4.0"),
        ({"heads": "4"}, "option heads of Asks must be int; got '4'"),
        ({"rate": "1"}, "option rate of Asks must be float; got '1'; input should be a valid number"),
    ],
)
def test_an_option_of_another_type_than_declared_is_refused(options, match):
    with pytest.raises(ValueError, match=match):
        Asks(**({"heads": 4} | options))


def test_what_is_declared_is_taken_as_it_is():
    assert Asks(heads=4, form="fine", rate=2, words=object()).rate == 0.5


def test_an_error_that_is_not_about_types_is_left_as_it_is():
    with pytest.raises(ZeroDivisionError):
        Asks(heads=4, rate=0.0)


def test_the_sizes_that_it_asks_for_are_kept():
    assert Asks(heads=4).heads == 4
    assert not hasattr(Asks(heads=4), "width")
    more = AsksMore(heads=4, width=5)
    assert (more.heads, more.width) == (4, 3)
    assert not torch.nn.Module.state_dict(more)

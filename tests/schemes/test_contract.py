"""What the base class does for every scheme: options are checked, sizes are stored."""

from typing import Literal

import pytest
import torch

from ordinate.schemes import Scheme

pytestmark = pytest.mark.usefixtures("untyped")


class Asks(Scheme):
    """Scheme without checks of its own."""

    shift_invariant = True

    def __init__(self, *, heads: int, form: Literal["plain", "fine"] = "plain", rate: float = 1.0, words=None):
        super().__init__()
        self.form, self.rate = form, 1 / rate


class AsksMore(Asks):
    """Subclass of it."""

    def __init__(self, *, width: int | None = None, **others):
        super().__init__(**others)
        self.width = 3


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"form": "fin"},
            r"option form of Asks must be Literal\['plain', 'fine'\]; got 'fin'; give one of 'plain', 'fine'",
        ),
        ({"form": None}, "option form of Asks must be .*; got None"),
        ({"heads": 4.0}, "option heads of Asks must be int; got 4.0"),
        ({"heads": "4"}, "option heads of Asks must be int; got '4'"),
        ({"rate": "1"}, "option rate of Asks must be float; got '1'; give a number"),
    ],
)
def test_an_option_of_another_type_than_annotated_raises_an_error(options, match):
    with pytest.raises(ValueError, match=match):
        Asks(**({"heads": 4} | options))


def test_options_of_the_annotated_type_are_accepted():
    assert Asks(heads=4, form="fine", rate=2, words=object()).rate == 0.5


def test_errors_that_are_not_about_types_pass_unchanged():
    with pytest.raises(ZeroDivisionError):
        Asks(heads=4, rate=0.0)


def test_requested_sizes_are_stored():
    assert Asks(heads=4).heads == 4
    assert not hasattr(Asks(heads=4), "width")
    more = AsksMore(heads=4, width=5)
    assert (more.heads, more.width) == (4, 3)
    assert not torch.nn.Module.state_dict(more)

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from ordinate.core.option_values import describe_kind, normalise_fields, read_value


@dataclass(frozen=True)
class Pair:
    first: int = 1
    second: float | None = None


class Doubled:
    @classmethod
    def parse(cls, given):
        return given * 2


@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        (int, "-8", -8),
        (int, 8.0, 8),
        (int, np.int64(3), 3),
        (float, "5e5", 5e5),
        (float, 3, 3.0),
        (bool, "True", True),
        (bool, "off", False),
        (str, "8", "8"),
        (int | None, None, None),
        (float | None, "2", 2.0),
        (int | str, "8", "8"),
        (str | int, 8, 8),
        (bool | None, "no", False),
        (Literal["a", "b"] | None, "b", "b"),
        (tuple[int, ...], ["1", 2], (1, 2)),
        (tuple[float, float], [1, "2"], (1.0, 2.0)),
        (list[int], ["1"], [1]),
        (Sequence[float], ("1",), (1.0,)),
        (Sequence[float], ["1"], [1.0]),
        (int | tuple[int, ...] | None, ["1", "2"], (1, 2)),
        (dict[str, int], {"a": "1"}, {"a": 1}),
        (Path, "x/y", Path("x/y")),
        (Pair, {"first": "3", "second": "4"}, Pair(3, 4.0)),
        (Pair | None, {}, Pair()),
        (Doubled, "ab", "abab"),
        (Any, "x", "x"),
        ("Unknown", 3, 3),
    ],
)
def test_a_value_is_converted_to_the_annotated_type(kind, given, found):
    read = read_value(kind, given)
    assert read == found
    assert type(read) is type(found)


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (int, "8.5", "give a whole number"),
        (int, 8.5, "give a whole number"),
        (int, True, "give a whole number"),
        (int, math.nan, "give a whole number"),
        (int, "9" * 5000, "give a whole number"),
        (float, "much", "give a number"),
        (float, True, "give a number"),
        (float, 10**400, "give a smaller number"),
        (float, None, "give a number"),
        (bool, 2, "give true or false"),
        (bool, "maybe", "give true or false"),
        (str, 8, "give a text"),
        (int | None, "x", "give a whole number"),
        (int | float, "x", "give a whole number or give a number"),
        (Literal["a", "b"], "c", "give one of 'a', 'b'"),
        (Literal[1], True, "give one of 1"),
        (tuple[int, int], [1, 2, 3], "give 2 values"),
        (tuple[int, ...], "12", "give several values"),
        (dict[str, int], [1], "give names and values"),
        (np.ndarray, [1], "give a ndarray"),
        (Pair, {"frist": 3}, "did you mean 'first'"),
        (Pair, {"first": "x"}, "first must be int; got 'x'; give a whole number"),
    ],
)
def test_a_value_of_another_type_raises_an_error(kind, given, says):
    with pytest.raises(ValueError, match=says):
        read_value(kind, given)


@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        (int, 3, 3),
        (float, 3, 3.0),
        (tuple[int, ...], (1, 2), (1, 2)),
        (int | None, None, None),
        (Pair, Pair(), Pair()),
    ],
)
def test_a_strict_reader_takes_what_has_the_type(kind, given, found):
    assert read_value(kind, given, strict=True) == found


@pytest.mark.parametrize(
    ("kind", "given"),
    [(int, "3"), (int, 3.0), (float, "3"), (bool, "true"), (bool, 1), (tuple[int, ...], [1]), (list[int], (1,)),
     (list[int], [1.0]), (Path, "x"), (Pair, {}), (int | None, "3"), (dict[str, str], {"a": 1})],
)  # fmt: skip
def test_a_strict_reader_converts_nothing(kind, given):
    with pytest.raises(ValueError, match="give "):
        read_value(kind, given, strict=True)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (int, "int"),
        (int | None, "int | None"),
        (Literal["a.b"], "Literal['a.b']"),
        (Path | None, "Path | None"),
        (tuple[int, ...], "tuple[int, ...]"),
    ],
)
def test_an_annotation_is_described_without_modules(kind, says):
    assert describe_kind(kind) == says


@dataclass(frozen=True)
class Needing:
    count: int
    width: int = 2


def test_options_without_a_default_must_be_given():
    assert read_value(Needing, {"count": "3"}) == Needing(3)
    with pytest.raises(ValueError, match=r"options of Needing must have count; .* lacks count; add what is missing"):
        read_value(Needing, {"width": 1})


@dataclass(frozen=True)
class Several:
    places: tuple[Literal["norm", "head"], ...] = ("norm",)
    windows: tuple[int | None, ...] = (None,)
    side: tuple[int, int] = (2, 2)
    end: int | tuple[int, ...] = 1
    ids: tuple[tuple[int, ...], ...] | None = None
    position: Literal["pre", "post"] | tuple[Literal["pre", "post"], ...] = "pre"
    rate: float = 1.0

    def __post_init__(self):
        normalise_fields(self)


def test_fields_get_plain_numbers_and_tuples():
    found = Several(["head"], [np.int64(3), None], [4, 5], [6], [[1], [2, 3]], ["pre", "post"], np.float32(0.5))
    assert found == Several(("head",), (3, None), (4, 5), (6,), ((1,), (2, 3)), ("pre", "post"), 0.5)
    assert [type(x) for x in (found.rate, found.windows[0])] == [float, int]
    hash(found)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"places": 1}, r"places must be tuple\[.*\]; got 1; give several values, in a tuple"),
        ({"places": "norm"}, r"places must be tuple\[.*\]; got 'norm'; give several values, in a tuple"),
        ({"windows": 4}, r"windows must be tuple\[int \| None, \.\.\.\]; got 4; give several values, in a tuple"),
        ({"windows": (1.5,)}, "windows must be .*; got .1.5,.; give a whole number, in a tuple"),
        ({"windows": (True,)}, "windows must be .*; got .True,.; give a whole number"),
        ({"side": 224}, r"side must be tuple\[int, int\]; got 224; give several values, in a tuple"),
        ({"side": (1, 2, 3)}, r"side must be tuple\[int, int\]; got \(1, 2, 3\); give 2 values, in a tuple"),
        (
            {"end": 1.5},
            r"end must be int \| tuple\[int, \.\.\.\]; got 1.5; give a whole number or give several values",
        ),
        ({"ids": (1, 2)}, r"ids must be .*; got \(1, 2\); give several values, in a tuple"),
        ({"rate": True}, "rate must be a number; got True; give one"),
    ],
)
def test_a_field_with_a_value_of_another_kind_is_an_error_that_names_it(given, match):
    with pytest.raises(TypeError, match=f"^{match}"):
        Several(**given)


def test_unknown_choices_are_left_to_the_class():
    assert Several(places=("heads",), position="prae").places == ("heads",)


def test_whole_numbers_that_a_tensor_can_hold_are_taken():
    @dataclass(frozen=True)
    class Seeded:
        seed: int = 0

        def __post_init__(self):
            normalise_fields(self)

    assert Seeded((1 << 63) - 1).seed == (1 << 63) - 1
    for number in (1 << 63, 10**400):
        with pytest.raises(ValueError, match=r"seed must be below 2\^63; got .*; give a smaller number"):
            Seeded(number)

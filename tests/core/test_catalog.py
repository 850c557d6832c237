import sys

import pytest

from ordinate.attention._backend import Backend
from ordinate.core import catalog
from ordinate.schemes._scheme import Scheme

SCHEMES = "ordinate.schemes"


class Kind:
    pass


class Member(Kind):
    def __init__(self, *, width: int, theta: float = 1e4, name: str = "a", layers: list[int] | None = None) -> None:
        self.width, self.theta, self.name, self.layers = width, theta, name, layers


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make an importable package; the function returned writes a file into it."""
    package = tmp_path / "shelf"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda name, text: (package / f"{name}.py").write_text(text)
    for name in [name for name in sys.modules if name.split(".")[0] == "shelf"]:
        del sys.modules[name]


def test_names_are_the_files_sorted():
    assert catalog.names("ordinate.attention.backends") == sorted(catalog.names("ordinate.attention.backends"))
    assert {"alibi", "none", "rope", "t5"} <= set(catalog.names(SCHEMES))


def test_listing_names_imports_nothing_and_skips_underscores(folder):
    folder("good", "raise RuntimeError('imported')")
    folder("_hidden", "")
    assert catalog.names("shelf") == ["good"]


@pytest.mark.parametrize("name", ["ordinate.nowhere", "nowhere.at.all", "ordinate.core.checks"])
def test_a_package_that_does_not_exist_raises_an_error(name):
    with pytest.raises(ValueError, match=f"a catalog needs an importable package; got '{name}'"):
        catalog.names(name)


@pytest.mark.parametrize("name", catalog.names(SCHEMES))
def test_each_file_gives_its_class(name):
    member = catalog.load(SCHEMES, Scheme, name)
    assert issubclass(member, Scheme)
    assert member.__module__ == f"{SCHEMES}.{name}"


def test_an_unknown_name_suggests_the_closest():
    with pytest.raises(ValueError, match=r"no scheme is named 'alibbi'.*did you mean 'alibi'"):
        catalog.load(SCHEMES, Scheme, "alibbi")
    with pytest.raises(ValueError, match=r"no backend is named 'spda'.*did you mean 'sdpa'"):
        catalog.load("ordinate.attention.backends", Backend, "spda")


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", [None, 3, float("nan"), ["rope"]])
def test_a_name_that_is_no_text_as_a_file_may_hold_it_raises_an_error(name):
    with pytest.raises(ValueError, match=r"the name of a scheme must be a text; got .*; choose one of: alibi, "):
        catalog.load("ordinate.schemes", Scheme, name)


@pytest.mark.parametrize("name", ["../checks", "rope.x", "", "ordinate.core.checks", "__init__"])
def test_a_name_cannot_reach_beyond_the_folder(name):
    before = set(sys.modules)
    with pytest.raises(ValueError, match=r"no scheme is named"):
        catalog.load(SCHEMES, Scheme, name)
    assert set(sys.modules) == before


def test_two_classes_in_one_file_raise_an_error(folder):
    folder("pair", "class A(Exception): pass\nclass B(Exception): pass\n")
    with pytest.raises(ValueError, match=r"must define exactly one Exception; shelf.pair defines A, B; split it"):
        catalog.load("shelf", Exception, "pair")


def test_a_file_without_a_class_raises_an_error(folder):
    folder("empty", "from builtins import ValueError\n")
    with pytest.raises(ValueError, match=r"shelf.empty defines none"):
        catalog.load("shelf", Exception, "empty")


def test_an_imported_class_is_ignored(folder):
    folder("one", "from shelf.other import Other\nclass One(Other): pass\n")
    folder("other", "class Other(Exception): pass\n")
    assert catalog.load("shelf", Exception, "one").__name__ == "One"


def test_options_are_the_keyword_only_parameters():
    assert list(catalog.options(Member)) == ["width", "theta", "name", "layers"]


def test_sizes_are_bound_by_parameter_name():
    assert catalog.bind(Member, {}, {"width": 8, "heads": 2}) == {"width": 8}


def test_an_option_wins_over_a_size():
    assert catalog.bind(Member, {"width": 4}, {"width": 8}) == {"width": 4}


def test_strings_are_converted_to_the_annotated_type():
    bound = catalog.bind(Member, {"theta": "5e5", "width": "8"}, {})
    assert bound == {"theta": 5e5, "width": 8}
    assert type(bound["theta"]) is float
    assert type(bound["width"]) is int


def test_a_typo_in_an_option_suggests_the_closest():
    with pytest.raises(ValueError, match=r"no option of Member is named 'thetta'.*did you mean 'theta'"):
        catalog.bind(Member, {"thetta": 1.0}, {"width": 8})


@pytest.mark.parametrize(
    ("option", "value", "wanted"), [("theta", "much", "float"), ("width", 1.5, "int"), ("layers", "1", "list")]
)
def test_a_value_of_the_wrong_type_raises_an_error(option, value, wanted):
    with pytest.raises(ValueError, match=rf"option {option} of Member must be {wanted}.*; got {value!r}; "):
        catalog.bind(Member, {option: value}, {"width": 8})


def test_a_missing_size_is_named():
    with pytest.raises(ValueError, match=r"Member needs width; got theta; give each by keyword"):
        catalog.bind(Member, {"theta": 1.0}, {"heads": 2})


def test_a_literal_option_lists_its_choices():
    rope = catalog.load(SCHEMES, Scheme, "rope")
    with pytest.raises(ValueError, match=r"option layout of Rope must be .*'half'.*got 'halves'"):
        catalog.bind(rope, {"layout": "halves"}, {"head_width": 8})


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("rope", "rope", {}),
        ("rope:theta=5e5", "rope", {"theta": "5e5"}),
        ("rope:theta=5e5,layout=interleaved", "rope", {"theta": "5e5", "layout": "interleaved"}),
        ("rope:spectrum=linear,spectrum.factor=4", "rope", {"spectrum": {"name": "linear", "factor": "4"}}),
        ("rope:spectrum.name=linear", "rope", {"spectrum": {"name": "linear"}}),
    ],
)
def test_a_scheme_is_written_with_its_options(text, name, options):
    assert catalog.parse(text) == (name, options)


@pytest.mark.parametrize("text", ["rope:theta", "rope:theta=", "rope:=3", "rope:theta=1,"])
def test_a_malformed_option_raises_an_error(text):
    with pytest.raises(ValueError, match="options must be written name=value"):
        catalog.parse(text)


def test_an_option_given_twice_raises_an_error():
    with pytest.raises(ValueError, match="'theta' twice"):
        catalog.parse("rope:theta=1,theta=2")
    with pytest.raises(ValueError, match=r"'spectrum.factor' twice"):
        catalog.parse("rope:spectrum=linear,spectrum.factor=2,spectrum.factor=3")


class Sized:
    def __init__(self, *, count: int = 1, share: float = 1.0, other: object = None) -> None:
        self.count, self.share = count, share


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": "99999999"}, "option count of Sized must be at most 16777216; got 99999999; give a smaller one"),
        ({"count": "9" * 500}, "option count of Sized must be at most 16777216; got a number of 1661 bits"),
        ({"share": "nan"}, "option share of Sized must be finite; got nan; give a number"),
        ({"share": "-inf"}, "option share of Sized must be finite; got -inf; give a number"),
        ({"count": "x" * 5000}, r"option count of Sized must be int; got 'x{79}\.\.\.; give a whole number"),
    ],
)
def test_impossible_numbers_are_refused_in_short(options, message):
    with pytest.raises(ValueError, match=message):
        catalog.bind(Sized, options, {})

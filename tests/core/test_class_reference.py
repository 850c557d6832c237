import sys

import pytest

from ordinate.core import catalog
from ordinate.core.class_reference import (
    ALLOW_VARIABLE,
    external_classes,
    is_reference,
    load_reference,
    need_allowed,
    references,
    source_digest,
)
from ordinate.schemes import Rope
from ordinate.schemes._scheme import Scheme

SCHEMES = "ordinate.schemes"
SPIRAL = """
from ordinate.schemes import Scheme

class Spiral(Scheme):
    shift_invariant = True

    def __init__(self, *, turns: float = 1.0) -> None:
        super().__init__()
        self.turns = turns

class Other:
    pass
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the current folder, which is not on the path."""
    (tmp_path / "shapes_of_mine.py").write_text(SPIRAL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "shapes_of_mine"
    sys.modules.pop("shapes_of_mine", None)


@pytest.mark.parametrize("name", ["a:B", "a.b:Spiral", "_a.b1:_Spiral", "__main__:X"])
def test_a_class_is_named_by_its_module(name):
    assert is_reference(name)


@pytest.mark.parametrize(
    "name", ["rope", "rope:theta=5", "a:b", "a:B:x=1", "a:B=1", ":B", "a:", "a/b:C", "a-b:C", 1.5]
)
def test_other_names_are_no_classes(name):
    assert not is_reference(name)


def test_references_are_found_in_specifications():
    text = "rope:theta=5e5,my.mod:Spiral:turns=3+alibi/a:B,rope:spectrum=b:Wave,spectrum.factor=2"
    assert references(text, "none") == ["my.mod:Spiral", "a:B", "b:Wave"]
    assert external_classes([text, "rope"]) == ["a:B", "b:Wave", "my.mod:Spiral"]


def test_a_class_and_its_options_are_parsed():
    assert catalog.parse("my.mod:Spiral") == ("my.mod:Spiral", {})
    assert catalog.parse("my.mod:Spiral:turns=3,x.y=2") == ("my.mod:Spiral", {"turns": "3", "x": {"y": "2"}})


def test_a_class_of_the_current_folder_is_loaded(module):
    kind = catalog.load(SCHEMES, Scheme, f"{module}:Spiral")
    assert issubclass(kind, Scheme)
    assert catalog.bind(kind, {"turns": "3"}, {}) == {"turns": 3.0}
    assert sys.path[-1] not in ("", sys.path[0])
    assert len(source_digest(f"{module}:Spiral")) == 8


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shapes_of_mine:Other", "Other in shapes_of_mine must be a subclass of Scheme; got <class"),
        ("shapes_of_mine:Spiiral", "Spiiral in shapes_of_mine must be a subclass of Scheme; got None"),
        (
            "shapes_of_yours:Spiral",
            "the module must be importable; No module named 'shapes_of_yours'; run the",
        ),
        ("os:X", "X in os must be a subclass of Scheme; got None"),
        ("a..b:X", "a module must be given by its dotted name"),
    ],
)
def test_what_is_no_scheme_raises_an_error(module, name, says):
    with pytest.raises(ValueError, match=says):
        load_reference(name, Scheme)


@pytest.mark.parametrize("body", ["raise SystemExit(0)", "1 / 0"])
def test_a_module_that_raises_is_an_error(module, body, tmp_path):
    (tmp_path / "raises_alone.py").write_text(body)
    with pytest.raises(ValueError, match="raises_alone raised "):
        load_reference("raises_alone:X", Scheme)


def test_a_file_cannot_have_a_module_imported(module, monkeypatch):
    monkeypatch.delenv(ALLOW_VARIABLE, raising=False)
    name = f"{module}:Spiral"
    says = f'it.json names {name}; if you trust it, import {module} first, or set {ALLOW_VARIABLE}="{name}"'
    with pytest.raises(ValueError, match=says):
        need_allowed("it.json", ["rope", f"{name}:turns=3"])
    assert module not in sys.modules
    need_allowed("it.json", [name], allow=[name])
    monkeypatch.setenv(ALLOW_VARIABLE, f"x:Y, {name}")
    need_allowed("it.json", [name])
    monkeypatch.delenv(ALLOW_VARIABLE)
    # imported by the user
    load_reference(name, Scheme)
    need_allowed("it.json", [name])
    with pytest.raises(ValueError, match="must be imported or allowed"):
        need_allowed("it.json", [f"{module}:Absent"])


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install packages with a scheme; the lines are those of the group of schemes in their entry points."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(line, package="pack", body="from ordinate.schemes import Rope as Twist"):
        (tmp_path / f"{package}_mod.py").write_text(body)
        about = tmp_path / f"{package}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[ordinate.schemes]\n{line}\n")

    yield install
    for name in [name for name in sys.modules if name.endswith("_mod") and name in ("pack_mod", "bag_mod")]:
        del sys.modules[name]


def test_entry_points_are_members(installed):
    installed("twist = pack_mod:Twist")
    assert "twist" in catalog.names(SCHEMES)
    assert "twist" not in catalog.own_names(SCHEMES)
    assert "pack_mod" not in sys.modules
    assert catalog.load(SCHEMES, Scheme, "twist") is Rope
    assert (catalog.origin(SCHEMES, "twist"), catalog.origin(SCHEMES, "rope")) == ("pack 1.0", None)
    assert external_classes(["rope+twist:a=1"]) == ["pack_mod:Twist"]
    with pytest.raises(ValueError, match="did you mean 'twist'"):
        catalog.load(SCHEMES, Scheme, "twisst")


def test_ordinates_own_members_come_first(installed):
    installed("rope = pack_mod:Twist", body="Twist = object")
    assert catalog.load(SCHEMES, Scheme, "rope") is Rope
    assert catalog.origin(SCHEMES, "rope") is None


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("1 / 0", "pack_mod:Twist of pack 1.0 raised ZeroDivisionError: division by zero; update or"),
        ("Twist = object", "twist of pack 1.0 must be a subclass of Scheme; got <class"),
    ],
)
def test_a_broken_entry_point_is_named(installed, body, says):
    installed("twist = pack_mod:Twist", body=body)
    with pytest.raises(ValueError, match=says):
        catalog.load(SCHEMES, Scheme, "twist")


def test_two_packages_with_one_name_are_named(installed):
    installed("twist = pack_mod:Twist")
    installed("twist = bag_mod:Twist", "bag")
    with pytest.raises(ValueError, match=r"'twist' is registered by \w+ 1.0 and by \w+ 1.0; uninstall"):
        catalog.load(SCHEMES, Scheme, "twist")


def test_an_entry_point_that_cannot_be_written_is_left_out(installed):
    installed("Twist = pack_mod:Twist")
    with pytest.warns(UserWarning, match="lower-case identifiers; pack 1.0 registers 'Twist'; it is left out"):
        assert "Twist" not in catalog.names(SCHEMES)

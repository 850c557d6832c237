import pytest
import torch

from ordinate import T5, Alibi, Kerple, Unmarked
from ordinate.native import build
from ordinate.routes import native
from ordinate.testing.route import GEOMETRIES, assert_agrees, draw

pytestmark = pytest.mark.usefixtures("_built")
TYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def _compiler():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ORDINATE_NATIVE", raising=False)
        reason = build.reason()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def _built(_compiler, monkeypatch):
    monkeypatch.delenv("ORDINATE_NATIVE", raising=False)
    monkeypatch.setattr(native, "PAIRS", 0)


def t5() -> T5:
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


SCHEMES = {"none": Unmarked, "alibi": lambda: Alibi(heads=4), "t5": t5, "kerple": lambda: Kerple(heads=4)}


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_agrees_with_the_reference_forward_and_backward(name, geometry, type):
    where = GEOMETRIES[geometry](17)
    assert_agrees("native", SCHEMES[name](), where, *draw(where, type=type))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("width", [1, 8, 24, 33, 130])
@pytest.mark.parametrize("tokens", [5, 63, 129, 700])
def test_it_agrees_at_odd_lengths_and_head_widths(tokens, width, type):
    for geometry, name in (
        ("causal", "none"),
        ("window", "alibi"),
        ("left", "t5"),
        ("cross", "t5"),
        ("packed", "t5"),
    ):
        where = GEOMETRIES[geometry](tokens)
        assert_agrees("native", SCHEMES[name](), where, *draw(where, width=width, type=type))

"""Schemes and mixers of a model as text, instance, class, or list."""

import sys
import types

import pytest
import torch

from ordinate import Decoder, Shape, transplant
from ordinate.core.member_spec import UNWRITABLE
from ordinate.mixers import LinearAttention, Softmax
from ordinate.schemes import Alibi, HeadGroups, Learned, NoPosition, Rope, Scheme, Sum
from ordinate.spectra import Yarn

SMALL = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 2, "max_length": 32}
IDS = torch.arange(9)[None]


class Spiral(Scheme):
    """A scheme of one's own: a trained speed of rotation."""

    shift_invariant = True

    def __init__(self, *, heads: int, turns: float = 1.0, note: object = None) -> None:
        super().__init__()
        self.turns, self.speed = turns, torch.nn.Parameter(torch.full((heads,), turns))

    def bias(self, where):
        return -(where.offset[:, None, :, :, 0].abs() * self.speed[:, None, None])


@pytest.fixture
def module(monkeypatch):
    """Spiral in a module of its own."""
    own = types.ModuleType("spirals_of_mine")
    own.Spiral = Spiral
    monkeypatch.setitem(sys.modules, own.__name__, own)
    monkeypatch.setattr(Spiral, "__module__", own.__name__)
    return own.__name__


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Rope(head_width=8, theta=5e5), "rope:theta=500000.0"),
        (Rope, "rope"),
        ([Rope(head_width=8), "none"], "rope,none"),
        (Sum(Alibi(heads=2), NoPosition()), "alibi+none"),
        (HeadGroups(Alibi(heads=1), NoPosition(), heads=2), "alibi/none"),
        (
            Rope(head_width=8, spectrum=Yarn(factor=4.0, trained_length=128)),
            "rope:spectrum=yarn,spectrum.factor=4.0,spectrum.trained_length=128",
        ),
    ],
)
def test_the_forms_of_a_scheme_say_the_same_as_its_text(given, text):
    shape = Shape(scheme=given, **SMALL)
    assert shape.scheme == text
    torch.manual_seed(0)
    ours = Decoder(shape)(IDS)
    torch.manual_seed(0)
    assert torch.equal(ours, Decoder(Shape(scheme=text, **SMALL))(IDS))


def test_a_class_of_ones_own_enters_by_text_instance_and_class(module, tmp_path):
    text = f"{module}:Spiral:turns=3.0"
    for given in (text, Spiral(heads=2, turns=3.0)):
        model = Decoder(Shape(scheme=given, **SMALL)).eval()
        assert model.shape.scheme == text
        assert model.first_scheme.turns == 3
        model.save_pretrained(tmp_path)
        # the module is imported already
        assert torch.equal(Decoder.from_pretrained(tmp_path)(IDS), model(IDS))
    assert Shape(scheme=Spiral, **SMALL).scheme == f"{module}:Spiral"
    assert transplant(model, Spiral(heads=2, turns=2.0)).model.first_scheme.turns == 2


def test_a_file_that_names_a_class_is_refused(module, tmp_path, monkeypatch):
    Decoder(Shape(scheme=f"{module}:Spiral", **SMALL)).save_pretrained(tmp_path)
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ValueError, match=f"names {module}:Spiral; if you trust it"):
        Decoder.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="the module must be importable"):
        Decoder.from_pretrained(tmp_path, allow=[f"{module}:Spiral"])


def test_each_model_has_a_copy_of_an_instance():
    own = Spiral(heads=2, turns=3.0)
    shape = Shape(scheme=own, **SMALL)
    first, second = Decoder(shape), Decoder(shape)
    first.first_scheme.speed.data.fill_(7)
    assert own.speed.tolist() == second.first_scheme.speed.tolist() == [3, 3]
    # layers share a scheme unless it asks for one each
    assert len(first.schemes) == 1


def test_an_instance_must_have_the_sizes_of_the_model():
    with pytest.raises(ValueError, match=r"of the model; got Alibi\(heads=4\) for a model with heads=2; give"):
        Shape(scheme=Alibi(heads=4), **SMALL)


@pytest.mark.parametrize("given", [3, object(), LinearAttention, torch.nn.Linear(2, 2)])
def test_what_is_no_scheme_is_refused(given, untyped):
    with pytest.raises(TypeError, match="a scheme must be a text, a class or an instance of Scheme; got"):
        Shape(scheme=given, **SMALL)


def test_a_list_has_one_entry_for_each_layer():
    with pytest.raises(ValueError, match="a list must have one entry for each layer; got 'rope,none' in it"):
        Shape(scheme=["rope,none", "alibi"], **SMALL)
    with pytest.raises(ValueError, match="listed for the first layer; got an instance of Learned for layer 2"):
        Decoder(Shape(scheme=["none", Learned(width=16, max_length=32)], **SMALL))


def test_what_cannot_be_written_is_said_when_it_is_saved(tmp_path, module):
    model = Decoder(Shape(scheme=Spiral(heads=2, note=object()), **SMALL))
    assert model.shape.scheme == f"{module}:Spiral:note={UNWRITABLE}"
    assert model(IDS).isfinite().all()
    with pytest.raises(ValueError, match=f"{module}:Spiral:note=. has a class inside a function, or an option that"):
        model.save_pretrained(tmp_path)

    class Inside(Spiral):
        pass

    with pytest.raises(ValueError, match="has a class inside a function"):
        Decoder(Shape(scheme=Inside(heads=2), **SMALL)).save_pretrained(tmp_path)


def test_mixers_have_the_same_forms(untyped):
    shape = Shape(mixer=[LinearAttention(width=16, heads=2), "softmax"], **SMALL)
    assert shape.mixer == "linear,softmax"
    first, second = (block.mixer for block in Decoder(shape).blocks)
    assert (type(first), type(second)) == (LinearAttention, Softmax)
    assert Shape(mixer=Softmax, **SMALL).mixer == "softmax"
    with pytest.raises(TypeError, match="a mixer must be a text, a class or an instance of Mixer; got an instance"):
        Shape(mixer=Rope(head_width=8), **SMALL)

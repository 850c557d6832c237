"""Replacing the scheme of a model: kept and new parameters, and equality with a model built from scratch."""

import dataclasses

import pytest
import torch

from ordinate import Decoder, Encoder, EncoderShape, Shape
from ordinate.models._transplant import transplant
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.scheme_defaults import complete_scheme_options

IDS = torch.randint(0, 29, (2, 9), generator=torch.Generator().manual_seed(0))
SIZES = {"vocabulary": 29, "width": 16, "layers": 4, "heads": 4, "max_length": 32}


def born(scheme="rope:theta=500.0,rotary_dim=2", kind=Decoder, **given):
    torch.manual_seed(0)
    shape = (Shape if kind is Decoder else EncoderShape)(**SIZES, scheme=scheme, **given)
    return kind(shape).eval()


def others(model):
    return {name: x for name, x in model.state_dict().items() if not name.startswith("schemes.")}


@pytest.mark.covering(1)
@pytest.mark.parametrize("kind", [Decoder, Encoder])
@pytest.mark.parametrize(
    "scheme",
    [
        "none",
        "alibi",
        "rope:spectrum=yarn,spectrum.factor=2",
        "t5",
        "learned+alibi",
        "rope/none",
        "rope,rope,rope,none",
    ],
)
@torch.no_grad()
def test_the_result_is_the_model_one_would_have_built(scheme, kind):
    model = born(kind=kind)
    before = model(IDS)
    done = transplant(model, scheme)
    assert torch.equal(model(IDS), before)
    built = kind(dataclasses.replace(model.shape, scheme=complete_scheme_options(scheme, model.shape))).eval()
    built.load_state_dict(done.model.state_dict())
    assert torch.equal(done.model(IDS), built(IDS))
    assert all(torch.equal(x, others(done.model)[name]) for name, x in others(model).items())
    assert sorted(done.kept + done.resized + done.initialised) == sorted(
        set(done.model.state_dict()) - set(others(model))
    )
    # its weights are its own
    done.model.tokens.weight.zero_()
    assert torch.equal(model(IDS), before)


@torch.no_grad()
def test_the_same_line_gives_the_same_model():
    for scheme in ("rope:theta=500.0", "learned", "t5,t5,t5,none", "learned+alibi"):
        model = born(scheme)
        done = transplant(model, scheme)
        assert torch.equal(done.model(IDS), model(IDS))
        assert (done.initialised, done.resized, done.dropped) == ((), (), ())
        assert all(torch.equal(x, model.state_dict()[name]) for name, x in done.model.state_dict().items())


def test_what_the_line_leaves_open_stays():
    shape = born("rope:theta=500.0,rotary_dim=2,spectrum=linear,spectrum.factor=3.0").shape
    assert complete_scheme_options("rope", shape) == "rope:theta=500.0,rotary_dim=2"
    assert complete_scheme_options("rope:theta=7", shape) == "rope:theta=7,rotary_dim=2"
    said = "rope:theta=500.0,rotary_dim=2,spectrum=yarn,spectrum.trained_length=32,spectrum.factor=4.0"
    assert complete_scheme_options("rope:spectrum=yarn", shape, 128) == said
    assert complete_scheme_options("rope:spectrum=linear", shape, 48) == (
        "rope:theta=500.0,rotary_dim=2,spectrum=linear,spectrum.factor=1.5"
    )
    given = "rope:theta=500.0,rotary_dim=2,spectrum=yarn,spectrum.factor=8,spectrum.trained_length=9"
    assert (
        complete_scheme_options("rope:spectrum=yarn,spectrum.factor=8,spectrum.trained_length=9", shape, 128) == given
    )
    # a scheme that the layer had not begins with its own
    assert (
        complete_scheme_options("rope,alibi", dataclasses.replace(shape, scheme="none,rope:theta=500.0"))
        == "rope,alibi"
    )


@torch.no_grad()
def test_parameters_are_kept_where_the_scheme_stays():
    model = born("learned")
    table = model.schemes[0].table
    done = transplant(model, "learned+alibi")
    assert torch.equal(done.model.schemes[0].parts[0].table, table)
    assert (done.kept, done.initialised, done.dropped) == (("schemes.0.parts.0.table",), (), ())
    done = transplant(model, "t5")
    assert done.dropped == ("schemes.0.table",)
    assert done.initialised == tuple(name for name in done.model.state_dict() if name.startswith("schemes."))
    assert len(done.initialised) == 1
    again = transplant(model, "t5").model.state_dict()[done.initialised[0]]
    assert torch.equal(again, done.model.state_dict()[done.initialised[0]])
    assert not torch.equal(again, transplant(model, "t5", seed=1).model.state_dict()[done.initialised[0]])


@torch.no_grad()
def test_a_learned_table_is_resized():
    model = born("learned")
    done = transplant(model, "learned", max_length=64)
    assert torch.equal(done.model.schemes[0].table, model.schemes[0].resized(64).table)
    assert done.resized == ("schemes.0.table",)
    assert done.model(torch.zeros(1, 64).long()).shape == (1, 64, 29)


def test_a_scaling_reads_longer_texts_than_the_model_was_made_for():
    done = transplant(born("rope"), "rope:spectrum=yarn", max_length=128)
    assert done.model.shape.max_length == 128
    assert done.model.schemes[0].spectrum.factor == 4.0
    assert (done.kept, done.resized, done.initialised, done.dropped) == ((), (), (), ())


def test_what_is_trained_stays_so_and_random_numbers_are_left_alone():
    model = born().train()
    model.tokens.weight.requires_grad_(False)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    other = transplant(model, "t5").model
    assert torch.equal(torch.rand(1), expected)
    assert other.training
    assert not other.tokens.weight.requires_grad
    loss = other(IDS).square().sum()
    loss.backward()
    assert all(p.grad is not None for name, p in other.named_parameters() if p.requires_grad), "all learn"


def test_types_are_those_of_the_model():
    model = born().to(torch.bfloat16)
    assert {x.dtype for x in transplant(model, "t5").model.state_dict().values()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("scheme", "given", "match"),
    [
        ("rop", {}, "no scheme is named 'rop'; .*did you mean 'rope'"),
        ("rope:teta=1", {}, "no option of Rope is named 'teta'; .*did you mean 'theta'"),
        ("rope:spectrum=yar", {}, "no spectrum is named 'yar'; .*did you mean 'yarn'"),
        (
            "rope:spectrum=yarn,spectrum.factor=2,spectrum.facto=2",
            {},
            "no option of Yarn is named 'facto'; .*did you mean 'factor'",
        ),
        ("rope:spectrum=linear", {}, "Linear needs factor"),
        (
            "rope,none,none",
            {},
            "the number of schemes in a per-layer list must divide the number of layers; got 3 entries for 4",
        ),
        ("concatenated", {}, "'concatenated' needs another tokens.weight"),
        ("none", {"max_length": 0}, "max_length must be above zero; got 0"),
    ],
)
def test_what_does_not_fit_is_refused(scheme, given, match):
    with pytest.raises(ValueError, match=match):
        transplant(born(), scheme, **given)


def test_other_weights_are_never_drawn_anew():
    model = born("none", mixer="triangular_mlp")
    with pytest.raises(ValueError, match=r"'none' needs another blocks.0.mixer"):
        transplant(model, "none", max_length=64)
    with pytest.raises(ValueError, match="does not support hook"):
        transplant(model, "rope")
    with pytest.raises(TypeError, match="Linear"):
        transplant(torch.nn.Linear(1, 1), "none")


@torch.no_grad()
def test_schemes_of_vision_models_can_be_replaced():
    from ordinate.models.vision import VisionShape, VisionTransformer

    torch.manual_seed(0)
    sizes = {"width": 16, "layers": 2, "heads": 2, "image": (8, 8), "patch": (4, 4), "channels": 2}
    model, pixels = VisionTransformer(VisionShape(vocabulary=3, **sizes)).eval(), torch.randn(2, 2, 8, 8)
    assert torch.equal(transplant(model, model.shape.scheme).model(pixels), model(pixels))
    done = transplant(model, "grid")
    assert done.dropped == ("schemes.0.table",)
    assert not torch.equal(done.model(pixels), model(pixels))


def translator(**given):
    torch.manual_seed(0)
    return EncoderDecoder(EncoderDecoderShape(**SIZES | {"layers": 2}, end=1, **given)).eval()


TARGET = torch.cat([torch.zeros(2, 1).long(), IDS[:, :6]], 1)


@torch.no_grad()
@pytest.mark.parametrize(
    ("sides", "changed"),
    [
        (None, {"encoder", "decoder"}),
        (("encoder",), {"encoder"}),
        (("decoder",), {"decoder"}),
        (("cross",), {"cross"}),
        (("cross", "decoder"), {"cross", "decoder"}),
    ],
)
def test_locations_select_the_schemes_of_an_encoder_decoder(sides, changed):
    model = translator(scheme="rope:theta=500.0", cross_scheme="rope:theta=50.0")
    before = model(IDS, TARGET)
    done = transplant(model, "t5:buckets=6", locations=sides)
    shape = done.model.shape
    lines = {"encoder": shape.source_scheme, "decoder": shape.scheme, "cross": shape.cross_scheme}
    old = {"encoder": "rope:theta=500.0", "decoder": "rope:theta=500.0", "cross": "rope:theta=50.0"}
    assert lines == {name: "t5:buckets=6" if name in changed else old[name] for name in lines}
    born = {
        "encoder": "encoder.schemes.0.table",
        "decoder": "decoder.schemes.0.table",
        "cross": "cross_schemes.0.table",
    }
    assert set(done.initialised) == {born[name] for name in changed}
    built = EncoderDecoder(shape).eval()
    built.load_state_dict(done.model.state_dict())
    assert torch.equal(done.model(IDS, TARGET), built(IDS, TARGET))
    assert not torch.equal(done.model(IDS, TARGET), before)
    assert torch.equal(model(IDS, TARGET), before)
    kept = done.model.state_dict()
    assert all(torch.equal(x, kept[name]) for name, x in model.state_dict().items())
    assert set(kept) - set(model.state_dict()) == set(done.initialised)


@torch.no_grad()
def test_halves_keep_what_is_their_own():
    sides = {"source_scheme": "t5:buckets=8", "scheme": "t5:buckets=6"}
    model = translator(**sides)
    assert torch.equal(transplant(model, "t5").model(IDS, TARGET), model(IDS, TARGET))
    done = transplant(model, "t5+alibi")
    assert done.model.shape.source_scheme == "t5:buckets=8+alibi"
    assert done.model.shape.scheme == "t5:buckets=6+alibi"
    assert len(done.kept) == 2
    assert done.dropped == done.initialised == ()
    # a longer input is one for every side
    longer = transplant(translator(scheme="learned"), "rope", locations=["decoder"], max_length=64)
    assert (longer.resized, longer.dropped) == (("encoder.schemes.0.table",), ("decoder.schemes.0.table",))
    assert longer.model(torch.zeros(1, 64).long(), TARGET[:1]).shape == (1, 7, 29)


def test_sides_that_are_not_there_are_named():
    with pytest.raises(
        ValueError, match=r"no side is named .decode.; there are: cross, decoder, encoder; did you mean .decoder."
    ):
        transplant(translator(), "none", locations=["decode"])
    with pytest.raises(ValueError, match="no side is named 'encoder'"):
        transplant(born(), "none", locations=["encoder"])
    with pytest.raises(ValueError, match="cross_scheme must act inside attention"):
        transplant(translator(), "sinusoidal", locations=["cross"])

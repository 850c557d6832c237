"""Layers that share parameters."""

from copy import deepcopy

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ordinate import Cache, Decoder, Encoder, EncoderDecoderShape, EncoderShape, Shape, VisionShape, VisionTransformer
from ordinate.models.shared_layers import SharedLayers
from ordinate.probing import attach, record

SIZES = {"vocabulary": 11, "width": 16, "layers": 4, "heads": 4, "max_length": 64}
OWNERS = (0, 1, 0, 1)
IMAGE = {"vocabulary": 3, "width": 16, "layers": 4, "heads": 4, "image": (8, 8), "patch": (4, 4)}
MODELS = {
    "decoder": lambda **choices: Decoder(Shape(**SIZES | choices)),
    "encoder": lambda **choices: Encoder(EncoderShape(**SIZES | choices)),
    "vision": lambda **choices: VisionTransformer(VisionShape(**IMAGE | choices)),
}
each_model = pytest.mark.parametrize("name", MODELS)


def ids(*shape):
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(0))


def inputs(name):
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)) if name == "vision" else ids(2, 7)


def pair(name, owners=OWNERS, **choices):
    """A model with shared layers, and one with copies of its parameters."""
    torch.manual_seed(0)
    one, other = MODELS[name](shared_layers=owners, **choices), MODELS[name](**choices)
    for parameter in one.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    state = one.state_dict()
    for layer, owner in enumerate(owners):
        start = f"blocks.{owner}."
        state |= {f"blocks.{layer}.{x[len(start) :]}": state[x] for x in list(state) if x.startswith(start)}
    other.load_state_dict(state)
    return one.double().eval(), other.double().eval()


def tied(model, owners=OWNERS):
    """Whether the parameters of the layers are one set."""
    for layer, owner in enumerate(owners):
        mine, theirs = (dict(model.blocks[one].named_parameters()) for one in (layer, owner))
        if not (mine.keys() == theirs.keys() and all(mine[name] is theirs[name] for name in mine)):
            return False
    return True


@each_model
@pytest.mark.parametrize("checkpointed", [False, True])
def test_outputs_are_those_of_copies_and_gradients_their_sums(name, checkpointed):
    one, other = pair(name)
    if checkpointed:
        one.gradient_checkpointing_enable()
    out, expected = one(inputs(name)), other(inputs(name))
    assert torch.equal(out, expected)
    weights = torch.randn_like(out)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    named = dict(other.named_parameters())
    for place, parameter in one.named_parameters():
        layers = [place.replace("blocks.0.", f"blocks.{layer}.") for layer in (0, 2)]
        layers = [
            each.replace("blocks.1.", f"blocks.{1 + int(layer)}.") for each, layer in zip(layers, (0, 2), strict=True)
        ]
        found = [named[each].grad for each in dict.fromkeys(layers)]
        if found[0] is not None:
            assert torch.allclose(parameter.grad, sum(found), atol=1e-12, rtol=0), place


def test_reversible_layers_may_share_parameters():
    one, other = pair("decoder", blocks="reversible")
    plain = one(ids(2, 7))
    assert torch.allclose(plain, other(ids(2, 7)), atol=1e-12, rtol=0)
    (plain.square().sum()).backward()
    other(ids(2, 7)).square().sum().backward()
    expected = other.blocks[1].mixer.out.weight.grad + other.blocks[3].mixer.out.weight.grad
    assert torch.allclose(one.blocks[1].mixer.out.weight.grad, expected, atol=1e-12, rtol=0)


@each_model
def test_a_step_changes_all_layers_that_share(name):
    one, _ = pair(name)
    count = sum(parameter.numel() for parameter in one.parameters())
    alone = sum(parameter.numel() for parameter in one.blocks[0].parameters())
    assert count == sum(parameter.numel() for parameter in MODELS[name]().parameters()) - 2 * alone
    step = torch.optim.AdamW(one.parameters(), 0.1)
    before = one.blocks[2].mixer.project.weight.detach().clone()
    one(inputs(name)).square().sum().backward()
    step.step()
    assert tied(one)
    assert not one.blocks[2].mixer.project.weight.equal(before)


@each_model
def test_a_file_has_each_parameter_once(name, tmp_path):
    one, _ = pair(name)
    one.save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors")
    assert not any(place.startswith(("blocks.2.", "blocks.3.")) for place in names)
    assert names.keys() == one.state_dict().keys()
    again = type(one).from_pretrained(tmp_path).double()
    assert again.shape == one.shape
    assert tied(again)
    assert torch.equal(again(inputs(name)), one.float().double()(inputs(name)))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.load_state_dict(deepcopy(model.state_dict())),
        lambda model: model.load_state_dict(deepcopy(model.state_dict()), assign=True),
        lambda model: model.to_empty(device="cpu").reset_parameters(),
        lambda model: model.to("meta"),
        lambda model: model.to(torch.bfloat16),
        lambda model: model.requires_grad_(False),
    ],
)
def test_layers_still_share_after_it(change):
    model, _ = pair("decoder")
    change(model)
    assert tied(model)
    assert tied(deepcopy(model))


def test_weights_of_layers_that_no_longer_share_are_in_the_state_dict(tmp_path):
    model, _ = pair("decoder")
    model.blocks[2].mixer.out.weight = nn.Parameter(torch.zeros(16, 16).double())
    assert [place for place in model.state_dict() if place.startswith("blocks.2.")] == ["blocks.2.mixer.out.weight"]
    with pytest.raises(ValueError, match=r"got others: blocks\.2\.mixer\.out\.weight; remove"):
        model.save_pretrained(tmp_path / "model")


def test_initial_values_are_those_of_a_model_with_fewer_layers_of_its_own():
    torch.manual_seed(3)
    one = MODELS["decoder"](shared_layers=OWNERS)
    torch.manual_seed(3)
    other = MODELS["decoder"]()
    assert all(torch.equal(x, other.state_dict()[place]) for place, x in one.state_dict().items())


@torch.no_grad()
def test_a_cache_holds_each_layer():
    one, other = pair("decoder", sliding_windows=(None, None, 3, None), scheme="rope,none,rope,rope:theta=100.0")
    cache = Cache()
    pieces = torch.cat([one(ids(2, 9)[:, begin:end], cache=cache) for begin, end in ((0, 4), (4, 5), (5, 9))], 1)
    assert len(cache.states) == 4
    assert torch.allclose(pieces, other(ids(2, 9)), atol=1e-12, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", ["decoder", "encoder"])
def test_probes_see_each_layer_by_itself(name):
    one, other = (attach(model.float()) for model in pair(name))
    assert one.info.layers == other.info.layers == 4
    for what in ("pattern", "resid_post", "q"):
        found, expected = (record(model, ids(1, 7), what).layers(what) for model in (one, other))
        assert torch.equal(found, expected)
        assert not found[:, 0].equal(found[:, 2])


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        ({"shared_layers": (0, 0)}, r"for each of 4 layers its own number, .*; got \(0, 0\); \(0, 0, 0, 0\) shares"),
        ({"shared_layers": (0, 2, 2, 2)}, "or that of an earlier layer that has its own; got"),
        ({"shared_layers": (0, 0, 1, 1)}, "or that of an earlier layer that has its own; got"),
        ({"shared_layers": (0, -1, 0, 0)}, "or that of an earlier layer that has its own; got"),
    ],
)
def test_other_numbers_are_refused(choices, match, untyped):
    with pytest.raises(ValueError, match=match):
        Shape(**SIZES | choices)


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        ({"mixer": "softmax,gla,softmax,softmax"}, "layers 0 and 1 differ in"),
        (
            {"first_norm": False},
            "layers 0 and 1 differ in mixer_norm.weight; give them the same mixer, norms and feed",
        ),
        ({"mixer_only_layers": (3,)}, "layers 0 and 3 differ in feedforward"),
    ],
)
def test_layers_with_other_parameters_are_refused(choices, match):
    with pytest.raises(ValueError, match=match):
        Decoder(Shape(**SIZES | choices, shared_layers=(0, 0, 0, 0)))


def test_an_encoder_decoder_shares_no_layers():
    with pytest.raises(ValueError, match=r"have parameters of their own; got shared_layers=\(0, 0, 0, 0\); leave"):
        EncoderDecoderShape(**SIZES, shared_layers=(0, 0, 0, 0))


def test_own_numbers_share_nothing():
    assert Shape(**SIZES, shared_layers=(0, 1, 2, 3)).with_defaults().shared_layers == ()
    assert isinstance(Decoder(Shape(**SIZES, shared_layers=OWNERS)).blocks[:2], nn.ModuleList)
    assert SharedLayers().shared() == []

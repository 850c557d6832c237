"""Layers that attend to the keys and values of earlier ones, read an input of their own, or are multiplied."""

from dataclasses import replace

import pytest
import torch

from ordinate import Cache, Decoder, Encoder, EncoderShape, Geometry, Shape, attach, generate
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.fixed_cache import check_fixed_size
from ordinate.models.vision import VisionShape
from ordinate.probing._adapter import Hooks, Inputs, NotApplicable

QK = "variant.qk_norm=true,variant.value_norm=true,variant.norm_eps=0.01"
SHAPE = Shape(
    *(29, 16, 4, 4),
    kv_heads=2,
    mixer=f"softmax:{QK},softmax:kv_heads=1,{QK},variant.head_width=6,variant.values_of_keys=true",
    scheme="rope,rope:head_width=6,rope,rope:head_width=6",
    sliding_windows=(3, None),
    norm_position="peri",
    feedforward="geglu_tanh",
    shared_keys=(0, 1, 0, 1),
    wide_layers=(2, 3),
    layer_input_width=5,
    layer_factors=True,
)
IDS = torch.randint(29, (2, 11), generator=torch.Generator().manual_seed(0))


def made(kind=Decoder, **options):
    torch.manual_seed(0)
    model = kind(replace(SHAPE, **options)).double().eval()
    for x in (*model.parameters(), *model.buffers()):
        x.data.add_(0.3 * torch.randn_like(x))
    return model


@pytest.fixture
def model():
    return made()


def near(out, expected):
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)


def rms(x, eps, weight=1.0):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def attended(block, at, x, kept):
    """Attention of a layer by its formula; keys and values of layers that have their own are kept."""
    mixer, places = block.mixer, torch.arange(x.shape[1])
    q = mixer.project(x)[..., : 4 * mixer.head_width].unflatten(-1, (4, -1)).transpose(1, 2)
    q = at.scheme.encode_query(rms(q, 0.01, mixer.q_norm.weight), at.where.q_pos)
    if mixer.own_keys:
        rest = mixer.project(x)[..., 4 * mixer.head_width :]
        size = mixer.head_width * (1 if mixer.values_of_keys else 2)
        k = rest[..., :size].unflatten(-1, (-1, mixer.head_width)).transpose(1, 2)
        v = k if mixer.values_of_keys else rest[..., size:].unflatten(-1, (-1, mixer.head_width)).transpose(1, 2)
        k = at.scheme.encode_key(rms(k, 0.01, mixer.k_norm.weight), at.where.q_pos)
        kept[mixer.head_width] = k, rms(v, 0.01)
    k, v = (part.repeat_interleave(4 // part.shape[1], 1) for part in kept[mixer.head_width])
    far = places[:, None] - places
    hidden = (far < 0) | (far >= (at.where.window or 99))
    scores = (q @ k.mT * mixer.head_width**-0.5).masked_fill(hidden, -torch.inf)
    return mixer.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def looped(model, ids):
    """The model by its formula, layer after layer."""
    x, inputs = model.tokens(ids), model.layer_inputs
    found = inputs.table(ids).unflatten(-1, (4, 5)) * 5**0.5
    read = (inputs.project(x) / 4).unflatten(-1, (4, 5))
    eps = torch.finfo(x.dtype).eps
    given = (rms(read, eps, inputs.norm.weight) + found) / 2**0.5
    places, kept = model._places(model.bind_schemes(Geometry.causal(ids.shape[1]))), {}
    for layer, block in enumerate(model.blocks):
        x = x + block.mixer_out_norm(attended(block, places[layer], block.mixer_norm(x), kept))
        x = x + block.feedforward_out_norm(block.feedforward(block.feedforward_norm(x)))
        branch = block.layer_input
        gate = torch.nn.functional.gelu(branch.widen(x), approximate="tanh")
        x = (x + branch.norm(branch.narrow(gate * given[:, :, layer]))) * block.factor
    return model.norm(x) @ model.tokens.weight.T


def test_it_is_the_formula_layer_after_layer_with_its_gradients(model):
    out, expected = model(IDS), looped(model, IDS)
    near(out, expected)
    upstream, leaves = torch.randn_like(out), list(model.parameters())
    for mine, theirs in zip(
        torch.autograd.grad(out, leaves, upstream), torch.autograd.grad(expected, leaves, upstream), strict=True
    ):
        near(mine, theirs)


def test_layers_have_the_parameters_that_they_use(model):
    names = {name: x.shape for name, x in model.named_parameters()}
    assert names["blocks.1.mixer.project.weight"] == (24 + 6, 16)
    assert names["blocks.2.mixer.project.weight"] == (16, 16)
    assert names["blocks.3.mixer.project.weight"] == (24, 16)
    assert "blocks.2.mixer.k_norm.weight" not in names
    assert names["blocks.3.feedforward.narrow.weight"][1] == 2 * names["blocks.1.feedforward.narrow.weight"][1]
    # a number that no gradient trains
    assert "blocks.0.factor" not in names
    assert model.state_dict()["blocks.0.factor"].shape == (1,)


@torch.no_grad()
def test_a_cache_has_the_keys_of_their_layers_only(model):
    cache, parts, start = Cache(), [], 0
    for size in (5, 1, 1, 4):
        parts.append(model(IDS[:, start : start + size], cache=cache))
        start += size
    near(torch.cat(parts, 1), model(IDS))
    assert [state is None for state in cache.states] == [False, False, True, True]
    turned = cache.select_rows(torch.tensor([1, 0]))
    more = torch.randint(29, (2, 1))
    near(model(more, cache=turned), model(more.flip(0), cache=cache.copy()).flip(0))


@torch.no_grad()
def test_padded_packed_and_written_texts(model):
    real = torch.arange(11) >= torch.tensor([[4], [0]])
    near(model(IDS, Geometry.padded(real))[0, 4:], model(IDS[:1, 4:])[0])
    packed = model(IDS[:1], Geometry.packed([4, 7]))
    near(packed, torch.cat([model(part) for part in IDS[:1].split([4, 7], 1)], 1))
    texts = list(generate(model, IDS[:1, :6], 5, temperature=0))
    whole = IDS[:1, :6]
    for token in texts:
        assert torch.equal(token, model(whole)[:, -1:].argmax(-1))
        whole = torch.cat([whole, token], 1)


def test_gradient_checkpointing_changes_no_bit(model):
    def gradients():
        return torch.autograd.grad(model(IDS).square().sum(), list(model.parameters()))

    usual = gradients()
    model.gradient_checkpointing_enable()
    assert all(map(torch.equal, gradients(), usual))


@torch.no_grad()
def test_a_saved_model_is_read_with_the_same_bits(model, tmp_path):
    model.float().save_pretrained(tmp_path)
    again = Decoder.from_pretrained(tmp_path)
    assert again.shape.with_defaults() == model.shape.with_defaults()
    assert torch.equal(again(IDS), model(IDS))


def test_the_usual_owners_are_none():
    assert replace(SHAPE, shared_keys=(0, 1, 2, 3)).with_defaults().shared_keys == ()
    near(made(shared_keys=(0, 1, 2, 3))(IDS), made(shared_keys=())(IDS))


def test_second_derivatives_are_those_of_the_formula(model):
    leaves, found = list(model.parameters()), []
    for run in (model, lambda ids: looped(model, ids)):
        first = torch.autograd.grad(run(IDS[:, :6]).square().mean(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(x.square().sum() for x in first), leaves))
    for mine, theirs in zip(*found, strict=True):
        near(mine, theirs)


PLAIN = {"norm_position": "pre", "layer_input_width": None, "layer_factors": False, "wide_layers": ()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shared_keys": (0, 1)}, r"shared_keys has for each of 4 layers its own number, .*; got \(0, 1\)"),
        ({"shared_keys": (0, 0, 1, 3)}, "or that of an earlier layer that has its own; got"),
        ({"shared_keys": (0, 1, 1, 1)}, "the same scheme, and heads of the same sizes; layers 1 and 2 differ"),
        (
            {"shared_keys": (0, 0, 0, 0), "mixer": "softmax", "scheme": "rope,alibi"},
            "the same scheme, and heads of the same sizes; layers 0 and 1 differ; give",
        ),
        (
            {"mixer": "linear", "scheme": "none", "kv_heads": None},
            "a layer without keys of its own needs the mixer softmax; got LinearAttention in layer 2; give it there",
        ),
        ({"second_mixer": "mamba2"}, "layers that share keys have one mixer; got second_mixer="),
        ({"blocks": "reversible", "norm_position": "pre"}, "shared_keys, wide_layers, .* need plain blocks; got"),
        ({"wide_layers": (4,)}, r"wide_layers must be different layers from 0 to 3; got \(4,\)"),
        ({"wide_layers": (1, 1)}, "wide_layers must be different layers"),
        ({"wide_layers": (1,), "mixer_only_layers": (1,)}, "wide_layers need a feed-forward network, of experts one"),
        ({"experts": ExpertOptions(3)}, "wide_layers need a feed-forward network, of experts one beside them; got"),
        ({"layer_input_width": 0}, "layer_input_width must be above zero; got 0"),
        ({"feedforward": "xielu"}, "layer_input_width needs a feedforward without parameters of its own"),
        (
            {"norm_position": "post", "experts": ExpertOptions(3, shared_hidden=4, combined="normed_sum")},
            "experts with combined='normed_sum' need norm_position='pre' or 'peri'; got 'post'",
        ),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)


def test_a_scheme_that_needs_projections_is_refused():
    deberta = "deberta:version.shared=true,buckets=none,max_distance=8"
    with pytest.raises(ValueError, match="layers that share keys need a scheme without projections; got Deberta"):
        made(mixer="softmax", kv_heads=None, scheme=deberta)


@pytest.mark.parametrize("kind", [EncoderShape, EncoderDecoderShape, VisionShape])
@pytest.mark.parametrize(
    "options", [{"shared_keys": (0, 0)}, {"wide_layers": (0,)}, {"layer_input_width": 4}, {"layer_factors": True}]
)
def test_they_are_options_of_decoders(kind, options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} is an option of decoders; got .*; leave it out"):
        kind(29, 16, 2, 2, **options)


def test_keys_of_another_layer_are_given_by_the_model_only(model):
    (first, *_), x = model.blocks, torch.randn(1, 5, 16, dtype=torch.float64)
    at = model._places(model.bind_schemes(Geometry.causal(5)))[0]
    must = "a layer attends to its own keys and values, or to those of another layer if it has none; got shared="
    with pytest.raises(ValueError, match=f"{must}False; run the whole model"):
        model.blocks[2].mixer(x, at)
    _, kept = first.mixer(x, at)
    with pytest.raises(ValueError, match=f"{must}True"):
        first.mixer(x, at, shared=kept)
    with pytest.raises(ValueError, match="a layer with a layer_input_width needs its input; got none; run the"):
        first(x, at)


def test_decoding_of_fixed_size_is_refused():
    plain = made(**PLAIN, sliding_windows=(None,))
    with pytest.raises(ValueError, match="layer 2 has the keys of another layer"):
        check_fixed_size(plain)


class Marked(Hooks):
    def qk_before_rope(self, layer, q, k):
        """Watch."""


class Patterns(Hooks):
    """Attention patterns by layer."""

    def __init__(self):
        self.seen = {}

    def attention_pattern(self, layer, weights):
        self.seen[layer] = weights


def test_the_lab_sees_the_pattern_of_every_layer(model):
    subject, watch = attach(model), Patterns()
    plain, watched = subject.forward(Inputs(IDS), Hooks()), subject.forward(Inputs(IDS), watch)
    near(watched.residual, plain.residual)
    assert sorted(watch.seen) == [0, 1, 2, 3]
    # a window of 3 in layers 0 and 2 only
    assert [bool((watch.seen[layer][..., 3:, 0] == 0).all()) for layer in range(4)] == [True, False, True, False]
    with pytest.raises(NotApplicable, match="layers that attend to the keys of others encode queries alone"):
        subject.forward(Inputs(IDS), Marked())
    with pytest.raises(NotApplicable, match="layer 2 has no keys and values of its own"):
        subject.projection(2)


def test_an_encoder_has_norms_of_values_and_values_of_keys():
    shape = EncoderShape(29, 16, 2, 2, mixer="softmax:variant.values_of_keys=true,variant.value_norm=true")
    names = dict(Encoder(shape).named_parameters())
    assert names["blocks.0.mixer.project.weight"].shape == (32, 16)

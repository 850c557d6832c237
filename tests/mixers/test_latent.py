import pytest
import torch

from ordinate import Decoder, EncoderDecoder, Geometry, Shape
from ordinate.attention._attend import BACKENDS
from ordinate.mixers import LatentOptions
from ordinate.mixers.latent import Latent
from ordinate.models.cache import Cache
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.fixed_cache import DecodingStep
from ordinate.schemes import Alibi, Rope

WIDTH, HEADS, SHARED, TOKENS = 12, 3, 4, 7
ROPE = Rope(head_width=SHARED)
SIZES = {"width": WIDTH, "heads": HEADS, "head_width": SHARED}
VARIANTS = [
    LatentOptions(),
    LatentOptions(rank=5, content_width=6, value_width=2),
    LatentOptions(rank=5, query_rank=7, content_width=3, value_width=8, scale=0.3),
]
REAL = torch.tensor([[True] * TOKENS, [False] * 3 + [True] * 4])
WHERES = [
    Geometry.causal(TOKENS),
    Geometry.full(TOKENS),
    Geometry.packed([3, 4]),
    Geometry.padded(REAL),
    Geometry.causal(TOKENS, window=3),
]


def made(variant, **told):
    """A mixer in float64, with numbers of which every one shows."""
    mixer = Latent(**SIZES, variant=variant, **told).double()
    for parameter in mixer.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return mixer


def normalised(x, norm):
    return x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight


def rotated(x, positions):
    """Each pair of channels, half a width apart, rotated by its angle."""
    half = x.shape[-1] // 2
    rates = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = torch.polar(torch.ones(1, dtype=torch.float64), positions[..., None] * rates)
    z = torch.complex(x[..., :half], x[..., half:]) * turned
    return torch.cat([z.real, z.imag], -1)


def formula(mixer, variant, x, where):
    """The formula of the paper, head by head."""
    content, value, rank = variant.widths(SHARED)
    scale = (content + SHARED) ** -0.5 if variant.scale is None else variant.scale
    positions = where.q_pos[..., 0].double()
    small = x @ mixer.project.weight.T
    c, key = normalised(small[..., :rank], mixer.latent_norm), rotated(small[..., rank:], positions)
    a = x if variant.query_rank is None else normalised(x @ mixer.query_down.weight.T, mixer.query_norm)
    outs, visible = [], where.visible
    for up, query in zip(mixer.expand.weight.chunk(HEADS), mixer.query.weight.chunk(HEADS), strict=True):
        q = torch.cat([a @ query[:content].T, rotated(a @ query[content:].T, positions)], -1)
        k = torch.cat([c @ up[:content].T, key], -1)
        weights = (q @ k.mT * scale).masked_fill(~visible, float("-inf")).softmax(-1)
        # padding sees nothing
        weights = weights.masked_fill(~visible.any(-1, keepdim=True), 0.0)
        outs.append(weights @ (c @ up[content:].T))
    assert outs[0].shape[-1] == value
    return torch.cat(outs, -1) @ mixer.out.weight.T


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_what_the_paper_writes_gradients_too(variant, where):
    mixer = made(variant)
    x = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)
    y, _ = mixer(x, ROPE.at(where))
    expected = formula(mixer, variant, x, where)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    leaves = [x, *mixer.parameters()]
    firsts = [torch.autograd.grad(out.square().sum(), leaves, create_graph=True) for out in (y, expected)]
    for mine, theirs in zip(*firsts, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)
    sums = [sum(part.square().sum() for part in first) for first in firsts]
    for mine, theirs in zip(*(torch.autograd.grad(one, leaves) for one in sums), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_token_that_continues_a_cache_is_compared_with_the_latent_vectors_themselves(variant):
    mixer, x = made(variant), torch.randn(2, TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)
    whole, _ = mixer(x, ROPE.at(Geometry.causal(TOKENS)))
    _, state = mixer(x[:, :-1], ROPE.at(Geometry.causal(TOKENS - 1)))
    seen, usual = [], mixer.compute_attention
    mixer.compute_attention = lambda q, k, v, *given, **named: (
        seen.append((q.shape, k.shape, v.shape)) or usual(q, k, v, *given, **named)
    )
    last, after = mixer(x[:, -1:], ROPE.at(Geometry.causal(1, cached=TOKENS - 1)), state)
    rank = variant.widths(SHARED)[2]
    assert seen == [
        ((2, HEADS, 1, rank + SHARED), (2, 1, TOKENS, rank + SHARED), (2, 1, TOKENS, rank)),
    ]
    # all that is held of a token: one encoded key and one latent vector
    assert (after.k.shape, after.v.shape) == ((2, 1, TOKENS, SHARED), (2, 1, TOKENS, rank))
    torch.testing.assert_close(last, whole[:, -1:], rtol=0, atol=1e-12)
    leaves = [x, *mixer.parameters()]
    both = [torch.autograd.grad(out.square().sum(), leaves, create_graph=True) for out in (last, whole[:, -1:])]
    for mine, theirs in zip(*both, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)


def test_without_biases_in_its_options_it_has_none_and_with_them_those_of_the_maps_of_tokens():
    biased = Latent(**SIZES, variant=LatentOptions(query_rank=5, bias=True))
    assert [name for name, _ in biased.named_parameters() if name.endswith("bias")] == [
        *("project.bias", "out.bias", "query_down.bias"),
    ]
    assert not any(name.endswith("bias") for name, _ in Latent(**SIZES).named_parameters())


@pytest.mark.parametrize("value_width", [8, 3])
def test_each_backend_computes_it_or_tells_why_not(value_width):
    mixer = made(LatentOptions(rank=5, content_width=4, value_width=value_width)).float()
    at, x, usual, told = ROPE.at(Geometry.causal(TOKENS)), torch.randn(1, TOKENS, WIDTH), mixer.compute_attention, {}
    exact, _ = mixer.double()(x.double(), at)
    mixer.float()
    for name in BACKENDS:
        mixer.compute_attention = lambda *given, name=name, **named: usual(*given, **{**named, "backend": name})
        try:
            torch.testing.assert_close(mixer(x, at)[0].double(), exact, rtol=0, atol=1e-5)
            told[name] = None
        except ValueError as error:
            told[name] = str(error)
    reasons = {name: reason for name, reason in told.items() if reason is not None}
    assert all(f"the backend {name!r} must support the call; it does not: " in reasons[name] for name in reasons)
    assert told["reference"] is None
    if value_width == 8:
        assert told["sdpa"] is None
    else:
        assert "the values have another head width than queries and keys" in told["sdpa"]


def test_a_bias_reaches_the_scores_of_whole_texts_and_of_single_tokens():
    mixer, x, scheme = made(VARIANTS[1]), torch.randn(1, TOKENS, WIDTH).double(), Alibi(heads=HEADS)
    whole, _ = mixer(x, scheme.at(Geometry.causal(TOKENS)))
    _, state = mixer(x[:, :-1], scheme.at(Geometry.causal(TOKENS - 1)))
    last, _ = mixer(x[:, -1:], scheme.at(Geometry.causal(1, cached=TOKENS - 1)), state)
    torch.testing.assert_close(last, whole[:, -1:], rtol=0, atol=1e-12)


def test_a_decoding_step_of_fixed_size_has_the_same_logits():
    model = Decoder(Shape(vocabulary=9, width=12, layers=2, heads=3, mixer="latent:variant.rank=6")).eval()
    ids = torch.randint(0, 9, (2, 6))
    with torch.no_grad():
        cache = Cache()
        model(ids[:, :4], cache=cache)
        step = DecodingStep(model, cache, 2)
        for place in (4, 5):
            step.ids.copy_(ids[:, place : place + 1])
            torch.testing.assert_close(step(), model(ids[:, : place + 1])[:, -1], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"scheme": "shaw"}, "mixer 'latent' does not support .*, used by scheme 'shaw'"),
        (
            {"scheme": "rope:spectrum=dynamic,spectrum.factor=2,spectrum.trained_length=8"},
            "does not support hook 'score', used by scheme 'rope'",
        ),
        ({"mixer": "latent:variant.rank=0"}, "rank must be above zero; got 0"),
        ({"mixer": "latent:variant.scale=-1"}, "scale must be above zero; got -1"),
        ({"mixer": "latent:rank=4"}, "option of Latent"),
    ],
)
def test_what_would_have_no_effect_or_cannot_be_computed_is_refused_by_name(told, message):
    with pytest.raises(ValueError, match=message):
        Decoder(Shape(**{"vocabulary": 5, "width": 24, "heads": 4, "mixer": "latent", **told}))


def test_cross_attention_is_refused_by_name():
    with pytest.raises(ValueError, match="cross_mixer must support cross-attention; mixer 'latent' does not; choose"):
        EncoderDecoder(EncoderDecoderShape(vocabulary=5, width=24, heads=4, cross_mixer="latent"))

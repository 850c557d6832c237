"""The transform of hidden states before the head of a decoder."""

import pytest
import torch
from torch.nn.functional import layer_norm, linear

from ordinate import Cache, Decoder, EncoderDecoderShape, Geometry, Shape, VisionShape, generate
from ordinate.ops.activation import ACTIVATIONS

SIZES = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 4, "max_length": 64, "head_transform": True}
LABELS = {"head": "classes", "labels": ("eel", "newt"), "tie_embeddings": False}
CHOICES = {
    "tied": {},
    "with a head": {"tie_embeddings": False, "bias": ("norm", "head"), "norm": "layer"},
    "without a bias": {"head_bias": False, "head_activation": "relu", "norm": "layer", "bias": ()},
    "narrow": {"embedding_width": 8, "logit_scale": 0.5, "logit_softcap": 2.0},
    "appended columns": {"scheme": "concatenated"},
}
each_choice = pytest.mark.parametrize("name", CHOICES)


def build(**choices):
    torch.manual_seed(0)
    model = Decoder(Shape(**SIZES | choices)).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model


def ids(*shape):
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(1))


def normalised(norm, x):
    if isinstance(norm, torch.nn.LayerNorm):
        return layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
    eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * norm.weight


@each_choice
def test_logits_are_those_of_the_formula_and_so_are_gradients(name):
    model, text = build(**CHOICES[name]), ids(2, 7)
    x, part, shape = model.hidden_states(text).detach(), model.head_transform, model.shape
    inner = linear(x, part.transform.weight, part.transform.bias)
    made = normalised(part.norm, ACTIVATIONS[shape.head_activation](inner)) * shape.logit_scale
    table = model.tokens.weight if model.head is None else model.head.weight
    expected = linear(made[..., : table.shape[1]], table, None if model.head is None else model.head.bias)
    if shape.logit_softcap is not None:
        expected = shape.logit_softcap * (expected / shape.logit_softcap).tanh()
    out = model(text)
    assert torch.allclose(out, expected, atol=1e-12, rtol=0)
    weights, own = torch.randn_like(out), list(part.parameters())
    pairs = [torch.autograd.grad((one * weights).sum(), own) for one in (out, expected)]
    assert all(torch.allclose(one, other, atol=1e-12, rtol=0) for one, other in zip(*pairs, strict=True))


@each_choice
@torch.no_grad()
def test_a_cache_and_generation_transform_as_all_at_once(name):
    model, text = build(**CHOICES[name]), ids(2, 9)
    at_once, cache = model(text), Cache()
    pieces = torch.cat([model(text[:, begin:end], cache=cache) for begin, end in ((0, 4), (4, 5), (5, 9))], 1)
    assert torch.allclose(pieces, at_once, atol=1e-12, rtol=0)
    assert torch.allclose(model.next_token_logits(text), at_once[:, -1], atol=1e-12, rtol=0)
    grown = text
    for _ in range(5):
        grown = torch.cat([grown, model(grown)[:, -1:].argmax(-1)], 1)
    assert torch.cat([text, *generate(model, text, 5, temperature=0.0)], 1).equal(grown)


@each_choice
@torch.no_grad()
def test_it_is_saved_and_read_again(name, tmp_path):
    model, text = build(**CHOICES[name]).float(), ids(2, 7)
    model.save_pretrained(tmp_path)
    again = Decoder.from_pretrained(tmp_path)
    assert again.shape == model.shape
    assert torch.equal(again(text), model(text))


@torch.no_grad()
def test_a_classifier_reads_transformed_states():
    model, text = build(**LABELS), ids(2, 6)
    real = torch.arange(6) < torch.tensor([[4], [6]])
    last = torch.stack([model.hidden_states(text[:1, :4])[0, -1], model.hidden_states(text[1:])[0, -1]])
    expected = model.classes(model.head_transform(last))
    assert torch.allclose(model.class_logits(text, Geometry.padded(real)), expected, atol=1e-12, rtol=0)
    spans = build(head="spans", tie_embeddings=False)
    ends = spans.classes(spans.head_transform(spans.hidden_states(text))).mT
    assert torch.allclose(spans.span_logits(text), ends, atol=1e-12, rtol=0)


def test_it_learns():
    model, text = build(), ids(4, 9)
    before = model.head_transform.transform.weight.detach().clone()
    step = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(model(text)[:, :-1].flatten(0, 1), text[:, 1:].flatten())
        step.zero_grad()
        loss.backward()
        step.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert not model.head_transform.transform.weight.equal(before)


@pytest.mark.parametrize(
    ("kind", "choices", "match"),
    [
        (
            Shape,
            {"head": "none", "tie_embeddings": False},
            "head_transform is an option of the heads next_token, classes, token_classes, spans; got head='none'; le",
        ),
        (
            Shape,
            {"head_transform": False, "head_bias": False},
            "head_activation and head_bias have an effect only with head_transform; got head_activation=.*, head_b",
        ),
        (
            Shape,
            {"head_transform": False, "head_activation": "relu"},
            "only with head_transform; got head_activation='",
        ),
        (Shape, {"head_activation": "swish"}, "no head_activation is named 'swish'; there are"),
        (
            EncoderDecoderShape,
            {},
            "the head of an encoder-decoder reads hidden states themselves; got head_transform=True; leave it out",
        ),
        (
            EncoderDecoderShape,
            {"head_transform": False, "head_bias": False},
            "have an effect only with head_transform",
        ),
        (
            VisionShape,
            {"image": (8, 8), "patch": (4, 4)},
            "the head of a vision model reads hidden states themselves",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(kind, choices, match, untyped):
    with pytest.raises(ValueError, match=match):
        kind(**SIZES | choices)

import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.mixers.retnet import Retention
from ordinate.schemes import NoPosition, Rope


def paper(mixer, scheme, x):
    """The parallel form, equations 5 and 8: all pairs, weighted by the decay to the power of the offset."""
    heads, tokens = mixer.heads, len(x)
    q, k, v, gate = (x @ mixer.weights.T).split(mixer.widths, 1)
    q, k, v = (part.view(tokens, heads, -1).transpose(0, 1) for part in (q, k, v))
    pos = torch.arange(tokens)[None, :, None]
    q, k = scheme.encode_query(q[None], pos)[0], scheme.encode_key(k[None], pos)[0]
    decay = 1 - 2.0 ** (-5 - torch.arange(heads, dtype=torch.float64))
    offset = torch.arange(tokens)[:, None] - torch.arange(tokens)
    fade = (decay[:, None, None] ** offset.clamp(min=0)).tril()
    y = (q @ k.mT / q.shape[2] ** 0.5 * fade) @ v
    y = y / torch.sqrt((y * y).mean(2, keepdim=True) + 1e-5)
    return (y.transpose(0, 1).flatten(1) * gate * torch.sigmoid(gate)) @ mixer.out.T


@pytest.mark.parametrize("scheme", [Rope(head_width=4), NoPosition()], ids=lambda scheme: type(scheme).__name__)
def test_it_is_what_the_paper_writes_gradients_too(scheme):
    mixer = Retention(width=12, heads=3).double()
    x = torch.randn(2, 70, 12, dtype=torch.float64, requires_grad=True)
    ours, _ = mixer(x, scheme.at(Geometry.causal(70)))
    theirs = torch.stack([paper(mixer, scheme, row) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_a_model_keeps_the_initialisation_of_the_mixer():
    model = Decoder(Shape(vocabulary=11, width=16, layers=2, heads=2, mixer="retnet"))
    for block in model.blocks:
        for weight, bound in (
            (block.mixer.out, (6 / 48) ** 0.5),
            (block.mixer.weights[:32], 2**-2.5 * (6 / 32) ** 0.5),
        ):
            assert 0.8 * bound < weight.abs().max() <= bound


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"width": 10, "heads": 4}, "heads must divide width; got width 10, heads 4"),
        ({"width": 8, "heads": 2, "value_ratio": 0}, "value_ratio must be above zero; got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        Retention(**sizes)

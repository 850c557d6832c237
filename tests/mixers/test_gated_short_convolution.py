import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.gated_short_convolution import GatedShortConvolution
from ordinate.schemes import NoPosition

CASES = [{}, {"taps": 1}, {"taps": 4, "bias": True}]


def paper(mixer, u):
    """The layer, token by token: two gates, and between them a filter over the last tokens."""
    width, taps = mixer.width, mixer.convolution.weight.shape[1]
    zero = u.new_zeros(())
    given, shift, end = (
        zero if bias is None else bias for bias in (mixer.project.bias, mixer.convolution.bias, mixer.out.bias)
    )
    before, behind, inner = (u @ mixer.project.weight.T + given).split(width, 1)
    gated, out = before * inner, []
    for place in range(len(u)):
        filtered = torch.zeros_like(u[0]) + shift
        for back in range(min(place + 1, taps)):
            filtered = filtered + mixer.convolution.weight[:, taps - 1 - back] * gated[place - back]
        out.append(mixer.out.weight @ (behind[place] * filtered) + end)
    return torch.stack(out)


def made(**options):
    mixer = GatedShortConvolution(width=6, **options).double()
    for parameter in mixer.parameters():
        parameter.data.normal_()
    return mixer


def mixed(mixer, x, where=None, state=None):
    where = Geometry.causal(x.shape[1]) if where is None else where
    return mixer(x, NoPosition().at(where), state)


@pytest.mark.parametrize("options", CASES)
def test_it_is_what_the_paper_writes_gradients_too(options):
    mixer, x = made(**options), torch.randn(2, 9, 6, dtype=torch.float64, requires_grad=True)
    ours, _ = mixed(mixer, x)
    theirs = torch.stack([paper(mixer, row) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("options", CASES)
def test_in_both_directions_the_filter_alone_runs_twice(options):
    mixer, x = made(**options), torch.randn(1, 7, 6, dtype=torch.float64)
    y, state = mixed(mixer, x, Geometry.full(7))
    before, behind, inner = mixer.project(x).chunk(3, -1)
    there, back = (mixer.convolution(part, None)[0] for part in (before * inner, (before * inner).flip(1)))
    assert torch.allclose(y, mixer.out(behind * (there + back.flip(1))), atol=1e-12)
    assert state is None


@torch.no_grad()
@pytest.mark.parametrize("options", CASES)
@pytest.mark.parametrize("causal", [True, False])
def test_padding_leaves_no_trace_although_projections_have_biases(options, causal):
    mixer, x = made(**options), torch.randn(1, 9, 6, dtype=torch.float64)
    real = torch.arange(9)[None] >= 4
    y, state = mixed(mixer, x, Geometry.padded(real, causal=causal))
    alone, kept = mixed(mixer, x[:, 4:], Geometry.causal(5) if causal else Geometry.full(5))
    assert torch.allclose(y[:, 4:], alone, atol=1e-12)
    if causal:
        assert torch.allclose(state.recent, kept.recent, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("options", CASES)
def test_the_state_is_the_last_gated_inputs(options):
    mixer, x = made(**options), torch.randn(2, 9, 6, dtype=torch.float64)
    before, _, inner = mixer.project(x).chunk(3, -1)
    _, state = mixed(mixer, x)
    reach = mixer.convolution.weight.shape[1] - 1
    torch.testing.assert_close(state.recent, (before * inner)[:, 9 - reach :])


def test_a_layer_looks_no_further_back_than_its_taps():
    x = torch.randn(1, 9, 6, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(mixed(made(taps=4), x)[0][0, 7].sum(), x)
    assert slope[0].any(1).tolist() == [4 <= place <= 7 for place in range(9)]


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"taps": 0}, "taps must be above zero; got 0"),
        ({"width": 0}, "width must be above zero; got 0"),
    ],
)
def test_sizes_that_make_no_layer_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        GatedShortConvolution(**({"width": 6} | sizes))

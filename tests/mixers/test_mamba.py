import pytest
import torch
from torch.nn.functional import softplus

from ordinate import Geometry
from ordinate.mixers import MambaOptions
from ordinate.mixers.mamba import Mamba
from ordinate.schemes import NoPosition


def silu(x):
    return x * torch.sigmoid(x)


def convolved(x, weight, bias):
    taps = weight.shape[1]
    rows = torch.cat([x.new_zeros(taps - 1, x.shape[1]), x])
    return silu(torch.stack([(rows[t : t + taps] * weight.T).sum(0) for t in range(len(x))]) + bias)


def normalised(mixer, parts):
    variant = mixer.variant
    if variant.norm != "none":
        parts = [part / torch.sqrt((part * part).mean(1, keepdim=True) + variant.norm_eps) for part in parts]
    if variant.norm == "scaled":
        parts = [part * scale for part, scale in zip(parts, mixer.norm_scales, strict=True)]
    return parts


def paper(mixer, u):
    """Algorithm 2 of the paper in the block of its section 3.4, token by token, channel by channel."""
    zero = u.new_zeros(())
    given, shift, end = (
        zero if bias is None else bias for bias in (mixer.project.bias, mixer.convolution.bias, mixer.out.bias)
    )
    inner = mixer.skip.numel()
    mixed, z = (u @ mixer.project.weight.T + given).split(inner, 1)
    rows = convolved(mixed, mixer.convolution.weight, shift)
    low, b, c = normalised(mixer, (rows @ mixer.select.weight.T).split(mixer.sizes, 1))
    steps = softplus(low @ mixer.step.T + mixer.step_bias)
    rates, state, out = torch.exp(mixer.log_rate), torch.zeros_like(mixer.log_rate), []
    for t in range(len(u)):
        decay = torch.stack([torch.exp(-rates[d] * steps[t, d]) for d in range(inner)])
        state = decay * state + torch.outer(steps[t] * rows[t], b[t])
        y = (state @ c[t] + mixer.skip * rows[t]) * silu(z[t])
        out.append(mixer.out.weight @ y + end)
    return torch.stack(out)


def made(**options):
    """A mixer of which each number shows."""
    mixer = Mamba(width=6, **options).double()
    for name, parameter in mixer.named_parameters():
        if name != "log_rate":
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return mixer


def mixed(mixer, x, where=None, state=None):
    return mixer(x, NoPosition().at(Geometry.causal(x.shape[1]) if where is None else where), state)


@pytest.mark.parametrize(
    "options",
    [
        {"states": 5},
        {"expand": 1, "states": 1, "rank": 4, "taps": 2},
        {"states": 3, "rank": 3, "variant": MambaOptions(True, False, norm="plain", norm_eps=0.1)},
        {"states": 3, "rank": 2, "variant": MambaOptions(norm="scaled", norm_eps=0.01, inner=7)},
    ],
)
def test_it_is_what_the_paper_writes_gradients_too(options):
    mixer, x = made(**options), torch.randn(2, 23, 6, dtype=torch.float64, requires_grad=True)
    ours, _ = mixed(mixer, x)
    theirs = torch.stack([paper(mixer, row) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


VARIANTS = [MambaOptions(), MambaOptions(bias=True), MambaOptions(activation="sigmoid", norm="plain")]


@torch.no_grad()
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_enters_neither_the_state_nor_the_convolution_by_a_bias(variant, causal):
    mixer, x = made(states=5, variant=variant), torch.randn(1, 7, 6, dtype=torch.float64)
    real = torch.arange(7)[None] >= 3
    padded, state = mixed(mixer, x, Geometry.padded(real, causal=causal))
    alone, kept = mixed(mixer, x[:, 3:], Geometry.causal(4) if causal else Geometry.full(4))
    torch.testing.assert_close(padded[:, 3:], alone)
    if causal:
        torch.testing.assert_close(state.recent, kept.recent)
        torch.testing.assert_close(state.states, kept.states)


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_document_begins_without_the_states_and_inputs_of_the_one_before(variant):
    mixer, x = made(states=5, variant=variant), torch.randn(1, 9, 6, dtype=torch.float64)
    packed, state = mixed(mixer, x, Geometry.packed([4, 5]))
    first, (second, kept) = mixed(mixer, x[:, :4])[0], mixed(mixer, x[:, 4:])
    torch.testing.assert_close(packed, torch.cat([first, second], 1))
    torch.testing.assert_close(state.states, kept.states)


def test_published_sizes_and_initial_values():
    mixer = Mamba(width=768)
    assert (mixer.project.out_features, mixer.select.out_features, mixer.step.shape) == (3072, 80, (1536, 48))
    assert Mamba(width=50).step.shape == (100, 4)
    steps = softplus(mixer.step_bias)
    assert 0.00099 < steps.min() < 0.0012 < 0.09 < steps.max() < 0.1001
    torch.testing.assert_close(mixer.log_rate.exp(), torch.arange(1.0, 17).repeat(1536, 1))
    assert (mixer.skip == 1).all()
    assert 0.99 * 48**-0.5 < mixer.step.abs().max() <= 48**-0.5
    assert not mixer.norm_scales
    assert [len(scale) for scale in Mamba(width=32, variant=MambaOptions(norm="scaled")).norm_scales] == [2, 16, 16]


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"width": 0}, "width must be above zero; got 0"),
        ({"expand": 0}, "expand must be above zero; got 0"),
        ({"states": 0}, "states must be above zero; got 0"),
        ({"rank": 0}, "rank must be above zero; got 0"),
        ({"taps": 0}, "taps must be above zero; got 0"),
        ({"expand": 3, "variant": MambaOptions(inner=7)}, "expand has no effect beside variant.inner; got 3; leave"),
    ],
)
def test_sizes_that_make_no_layer_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        Mamba(**({"width": 6} | sizes))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"activation": "swiglu"}, "no activation is named 'swiglu'; there are"),
        ({"norm": "rms"}, "no norm is named 'rms'; there are: none, plain, scaled"),
        ({"norm": "plain", "norm_eps": 2.0}, "norm_eps must lie in"),
        ({"inner": 0}, "inner must be above zero; got 0"),
        ({"norm_eps": 1e-5}, "norm_eps has no effect without norms; got 1e-05; leave it out, or give norm=plain"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, match, untyped):
    with pytest.raises(ValueError, match=match):
        MambaOptions(**options)

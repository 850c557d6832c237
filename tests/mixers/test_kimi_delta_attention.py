import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.kimi_delta_attention import KimiDeltaAttention
from ordinate.ops.native import build
from ordinate.schemes import NoPosition

CASES = [
    lambda: KimiDeltaAttention(width=12, heads=3),
    lambda: KimiDeltaAttention(width=10, heads=3, head_dim=5, taps=2, rank=2, norm_eps=0.1),
    lambda: KimiDeltaAttention(width=8, heads=2, head_dim=1, negative_eigenvalues=True),
]


def convolved(x, weight):
    """The causal convolution of each column over the last tokens, then SiLU."""
    taps = weight.shape[1]
    rows = torch.cat([x.new_zeros(taps - 1, x.shape[1]), x])
    y = torch.stack([(rows[t : t + taps] * weight.T).sum(0) for t in range(len(x))])
    return y * torch.sigmoid(y)


def paper(mixer, x):
    """The paper's recurrence and its layer, token by token; states have a row for each channel of the keys."""
    sizes = mixer.sizes
    heads, size, twice = sizes.heads, sizes.key_width, 2 if sizes.negative_eigenvalues else 1
    state = x.new_zeros(heads, size, size)
    rows = convolved(x @ mixer.project.weight.T, mixer.convolution.weight)
    out = []
    for token, row in zip(x, rows, strict=True):
        q, k, v = (part.view(heads, size) for part in row.chunk(3))
        q, k = (y / torch.sqrt((y * y).sum(1, keepdim=True) + 1e-6) for y in (q, k))
        beta = twice * torch.sigmoid(mixer.rate.weight @ token)
        narrow, wide = (mixer.step[part].weight for part in (0, 1))
        step = torch.log1p(torch.exp((wide @ narrow @ token).view(heads, size) + mixer.decay.bias))
        alpha = torch.exp(-torch.exp(mixer.decay.log_rate)[:, None] * step)
        moves = torch.eye(size).to(x) - beta[:, None, None] * k[:, :, None] * k[:, None]
        state = moves @ (alpha[:, :, None] * state) + beta[:, None, None] * k[:, :, None] * v[:, None]
        y = (q[:, None] @ state)[:, 0] / size**0.5
        y = y / torch.sqrt((y * y).mean(1, keepdim=True) + sizes.norm_eps) * mixer.norm_scale
        narrow, wide = (mixer.gate[part].weight for part in (0, 1))
        out.append(mixer.out.weight @ (y.flatten() * torch.sigmoid(wide @ narrow @ token)))
    return torch.stack(out)


@pytest.mark.parametrize("mixer", CASES)
def test_it_is_what_the_paper_writes_gradients_too(mixer):
    mixer = mixer().double()
    for parameter in mixer.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(2, 23, mixer.sizes.width, dtype=torch.float64, requires_grad=True)
    ours, _ = mixer(x, NoPosition().at(Geometry.causal(23)))
    theirs = torch.stack([paper(mixer, row) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_published_sizes_and_initial_decays():
    mixer = KimiDeltaAttention(width=2304, heads=32, head_dim=128)
    assert mixer.widths == [4096] * 3
    assert [x.weight.shape for x in mixer.step] == [(128, 2304), (4096, 128)]
    assert [x.weight.shape for x in mixer.gate] == [(128, 2304), (4096, 128)]
    steps, rates = torch.nn.functional.softplus(mixer.decay.bias), mixer.decay.log_rate.exp()
    assert steps.shape == (32, 128)
    assert 0.00099 < steps.min() < 0.002 < 0.05 < steps.max() < 0.1001
    assert 1 <= rates.min() < 5 < 12 < rates.max() < 16


@torch.no_grad()
def test_channels_that_decay_fast_forget_and_the_others_do_not():
    mixer = KimiDeltaAttention(width=8, heads=2).double()
    mixer.step[1].weight.zero_()
    mixer.decay.bias[:] = torch.tensor([-60.0, 1000.0, -60.0, 1000.0])
    _, state = mixer(torch.randn(1, 9, 8).double(), NoPosition().at(Geometry.causal(9)))
    still = mixer(torch.zeros(1, 6, 8).double(), NoPosition().at(Geometry.causal(6, cached=9)), state)[1]
    # the convolution has forgotten the tokens before these zeros
    last = mixer(torch.zeros(1, 1, 8).double(), NoPosition().at(Geometry.causal(1, cached=15)), still)[1]
    assert torch.equal(last.matrices[:, :, 1::2], torch.zeros(1, 2, 2, 4).double())
    torch.testing.assert_close(last.matrices[:, :, 0::2], still.matrices[:, :, 0::2])
    assert (last.matrices[:, :, 0::2] != 0).all()


@pytest.mark.extended
def test_a_long_text_runs_in_cpp(monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    if build.unavailable_reason("recurrence") is not None:
        pytest.skip(build.unavailable_reason("recurrence"))
    mixer, at = KimiDeltaAttention(width=64, heads=2), NoPosition().at(Geometry.causal(600))
    x = torch.randn(2, 600, 64)
    fast = mixer(x, at)[0]
    monkeypatch.setenv(build.ENV_VARIABLE, "off")
    torch.testing.assert_close(fast, mixer(x, at)[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"heads": 0}, "heads must be above zero; got 0"),
        ({"heads": 3}, "heads must divide width; got width 8, heads 3"),
        ({"head_dim": 0}, "head_dim must be above zero; got 0"),
        ({"rank": 0}, "rank must be above zero; got 0"),
        ({"taps": 0}, "taps must be above zero; got 0"),
        ({"norm_eps": 2.0}, "norm_eps must lie in .*; got 2.0"),
        ({"activation": "sigmoid"}, "must take 0 to 0: padding would enter the state; got 'sigmoid'"),
        ({"activation": "sillu"}, "no activation is named 'sillu'.*silu"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, match, untyped):
    with pytest.raises(ValueError, match=match):
        KimiDeltaAttention(**({"width": 8, "heads": 2} | options))

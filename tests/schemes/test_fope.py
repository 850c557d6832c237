import math

import pytest
import torch

from ordinate import Geometry
from ordinate.ops.sinusoids import combine_sinusoids
from ordinate.schemes import Rope
from ordinate.schemes.fope import Fope
from ordinate.testing import assert_as_close, check_scheme


def loop(x, positions, cosines, sines, rates, rest):
    # each pair of channels: a Fourier series over the kept frequencies; the rest constant
    d = x.shape[-1]
    heads = []
    for h in range(x.shape[1]):
        rows = []
        for token, p in enumerate(positions):
            channels = [None] * d
            for m in range(d // 2):
                cos, sin = 1.0, rest
                if m < cosines.shape[-1]:
                    cos = sum(cosines[h, D, m] * math.cos(p * rate) for D, rate in enumerate(rates))
                    sin = sum(sines[h, D, m] * math.sin(p * rate) for D, rate in enumerate(rates))
                u, v = x[:, h, token, m], x[:, h, token, m + d // 2]
                channels[m], channels[m + d // 2] = u * cos - v * sin, v * cos + u * sin
            rows.append(torch.stack(channels, -1))
        heads.append(torch.stack(rows, -2))
    return torch.stack(heads, 1)


def drawn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def column(positions):
    return torch.tensor(positions)[None, :, None]


# of 12 frequencies 10000^(-m/12): 2 pi / 64 keeps 4, 2 pi / 10^4 keeps 10; a quarter of 24 channels is 6
@pytest.mark.covering(1)
@pytest.mark.parametrize(("length", "kept", "outputs"), [(64, 4, {"vllm": 4}), (10_000, 10, {"vllm": 10})])
@pytest.mark.parametrize("form", ["paper", "official", "vllm"])
def test_it_is_the_series_of_the_paper_forward_and_backward(length, kept, outputs, form):
    scheme = Fope(head_width=24, heads=4, kv_heads=2, trained_length=length, form=form, trainable=True).double()
    rates, positions = [10_000.0 ** (-m / 12) for m in range(kept)], [0, 1, 7, 129]
    assert scheme.cosines.shape == (2, kept, outputs.get(form, min(kept, 6)))
    for hook, heads in ((scheme.encode_query, 4), (scheme.encode_key, 2), (scheme.encode_key, 4)):
        x, weights = drawn(2, heads, 4, 24).requires_grad_(), drawn(2, heads, 4, 24, seed=1)
        out = hook(x, column(positions))
        tables = (table.repeat_interleave(heads // 2, 0) for table in (scheme.cosines, scheme.sines))
        exact = loop(x, positions, *tables, rates, 1.0 if form == "official" else 0.0)
        leaves = (x, scheme.cosines, scheme.sines)
        slopes = torch.autograd.grad((out * weights).sum(), leaves)
        expected = torch.autograd.grad((exact * weights).sum(), leaves)
        assert_as_close(out, exact, exact)
        for slope, other in zip(slopes, expected, strict=True):
            assert_as_close(slope, other, other, what="gradient")


def test_kept_frequencies_complete_a_period_in_training():
    # 64 channels, theta 10^4: 16 of 32 frequencies complete a period in 512 tokens (computed by hand)
    assert len(Fope(head_width=64, heads=1, trained_length=512).rates) == 16
    assert len(Fope(head_width=8, heads=1, trained_length=62).rates) == 1
    assert len(Fope(head_width=8, heads=1, trained_length=63).rates) == 2
    assert len(Fope(head_width=8, heads=1, trained_length=6284).rates) == 4


def test_without_noise_it_is_rope_with_its_slow_pairs_at_rest():
    scheme, rope = Fope(head_width=64, heads=2, init_gain=0.0), Rope(head_width=64)
    q, pos = drawn(1, 2, 5, 64), column([0, 1, 100, 5000, 2**24 + 1])
    out, turned = scheme.encode_query(q, pos).unflatten(-1, (2, 32)), rope.encode_query(q, pos).unflatten(-1, (2, 32))
    assert torch.allclose(out[..., :16], turned[..., :16], rtol=0, atol=1e-7)
    assert out[..., 16:].equal(q.unflatten(-1, (2, 32))[..., 16:])


def test_the_official_form_counts_still_pairs_twice():
    options = {"head_width": 16, "heads": 1, "init_gain": 0.0}
    q, k, pos = drawn(1, 1, 5, 16), drawn(1, 1, 5, 16, seed=1), column([0, 1, 2, 3, 4])
    q.unflatten(-1, (2, 8))[..., :4] = 0
    scores = {
        form: scheme.encode_query(q, pos) @ scheme.encode_key(k, pos).mT
        for form in ("paper", "official")
        for scheme in [Fope(form=form, **options)]
    }
    assert torch.allclose(scores["official"], 2 * scores["paper"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kept", "length"), [(4, 64), (10, 10_000)])
def test_tables_are_initialised_as_in_the_published_code(kept, length):
    torch.manual_seed(0)
    scheme = Fope(head_width=24, heads=500, trained_length=length, init_gain=0.4)
    outputs = min(kept, 6)
    # steps of 1 where outputs suffice, else every second frequency has an output of its own
    step = 1 if kept == outputs else 2
    for table in (scheme.cosines, scheme.sines):
        noise = table.detach() - torch.tensor([[float(step * m == D) for m in range(outputs)] for D in range(kept)])
        deviation = 0.4 * math.sqrt(2 / ((kept + 500) * outputs))
        assert noise.std().item() == pytest.approx(deviation, rel=0.05)
        assert abs(noise.mean().item()) < deviation / 10
        assert noise.abs().max() < 6 * deviation


def test_tables_are_trained_only_if_asked():
    for trained in (False, True):
        scheme = Fope(head_width=16, heads=2, trainable=trained)
        assert [parameter.requires_grad for parameter in scheme.parameters()] == [trained, trained]
        assert set(scheme.state_dict()) == {"cosines", "sines"}


def test_a_shift_changes_scores():
    scheme, q, k = Fope(head_width=16, heads=1), drawn(1, 1, 5, 16), drawn(1, 1, 5, 16, seed=1)

    def scores(pos):
        return scheme.encode_query(q, pos) @ scheme.encode_key(k, pos).mT

    assert (scores(column([1, 2, 3, 4, 5])) - scores(column([0, 1, 2, 3, 4]))).abs().max() > 1e-3


def test_weighted_sums_do_not_depend_on_what_is_summed_beside():
    waves, weights = drawn(3, 50, 7), drawn(2, 7, 5, seed=1)
    whole = combine_sinusoids(waves, weights)
    assert whole[1:2, :, 20:21].equal(combine_sinusoids(waves[1:2, 20:21], weights))
    assert torch.allclose(whole, torch.einsum("bnD,hDp->bhnp", waves, weights), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_width": 7}, "fope needs an even head width; got head_width 7"),
        ({"trained_length": 6}, "complete a period within the training length; got trained_length=6; give 7 or more"),
        ({"trained_length": 0}, "trained_length must be above zero"),
        ({"init_gain": -0.1}, "init_gain must not be below zero; got -0.1"),
        ({"theta": 0.0}, "theta must be above zero"),
        ({"kv_heads": 0}, "kv_heads must be above zero"),
        ({"kv_heads": 3}, "kv_heads must divide heads; got 3 and 4"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Fope(**{"head_width": 16, "heads": 4} | options)


def test_two_axes_are_refused():
    with pytest.raises(ValueError, match="Fope takes positions with 1 axis; got 2 axes"):
        Fope(head_width=16, heads=1).at(Geometry.grid(2, 2))


@pytest.mark.extended
@pytest.mark.parametrize(
    "options", [{"form": "official", "trainable": True}, {"form": "vllm", "trained_length": 50, "trainable": True}]
)
def test_every_form_keeps_the_contract(options):
    assert not [outcome for outcome in check_scheme(Fope, **options) if outcome.message]

import itertools
import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Rope
from ordinate.schemes.spectra.longrope import LongRope
from ordinate.testing import check_scheme

SHORT, LONG = (1.0, 1.05, 1.2, 1.5), (1.0, 1.7, 4.0, 12.5)


def turned(x, position, divisors, magnitude, layout, theta=10_000.0):
    d, out = x.shape[-1], x.clone()
    for m in range(d // 2):
        one, two = (m, m + d // 2) if layout == "half" else (2 * m, 2 * m + 1)
        angle = position / (divisors[m] * theta ** (2 * m / d))
        a, b = x[..., one], x[..., two]
        out[..., one] = magnitude * (a * math.cos(angle) - b * math.sin(angle))
        out[..., two] = magnitude * (b * math.cos(angle) + a * math.sin(angle))
    return out


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("start", [0, 3, 6])
def test_each_query_turns_itself_and_its_keys_by_the_set_of_its_own_length(layout, start):
    spectrum = LongRope(short_factor=SHORT, long_factor=LONG, trained_length=5, factor=4)
    scheme, where = Rope(head_width=8, layout=layout, spectrum=spectrum), Geometry.causal(9 - start, cached=start)
    magnitude = math.sqrt(1 + math.log(4) / math.log(5))
    q = torch.randn(1, 2, 9 - start, 8, dtype=torch.float64).requires_grad_()
    k = torch.randn(1, 2, 9, 8, dtype=torch.float64).requires_grad_()
    rows = []
    for i in range(start, 9):
        divisors = SHORT if i + 1 <= 5 else LONG
        query = turned(q[:, :, i - start], i, divisors, magnitude, layout)
        keys = [turned(k[:, :, j], j, divisors, magnitude, layout) for j in range(9)]
        rows.append(torch.stack([(query * key).sum(-1) for key in keys], -1))
    expected, scores = torch.stack(rows, 2), scheme.score(q, k, where)
    assert torch.allclose(scores, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(scores)
    for got, wanted in zip(
        torch.autograd.grad((scores * upstream).sum(), (q, k)),
        torch.autograd.grad((expected * upstream).sum(), (q, k)),
        strict=True,
    ):
        assert torch.allclose(got, wanted, rtol=0, atol=1e-12)


def test_the_first_text_beyond_the_trained_length_turns_by_the_long_set():
    spectrum = LongRope(short_factor=SHORT, long_factor=LONG, trained_length=2048, factor=4)
    rates = spectrum.rates_at(torch.tensor([1, 2048, 2049]).double(), 8, 10_000.0)
    plain = [10_000.0 ** (-m / 4) for m in range(4)]
    for row, divisors in enumerate((SHORT, SHORT, LONG)):
        expected = [rate / by for rate, by in zip(plain, divisors, strict=True)]
        assert rates[row].tolist() == pytest.approx(expected, rel=1e-13)
    assert spectrum.length_thresholds == (2048,)
    assert spectrum.rates(8, 10_000.0) == rates[0].tolist()


@pytest.mark.parametrize(
    ("numbers", "magnitude"),
    [({"factor": 4.0}, 1.087115), ({"factor": 0.5}, 1.0), ({"attention_factor": 1.19}, 1.19)],
)
def test_golden_multiplier(numbers, magnitude):
    spectrum = LongRope(short_factor=SHORT, long_factor=LONG, trained_length=2048, **numbers)
    assert spectrum.query_key_scale == pytest.approx(magnitude, abs=1e-6)


def test_it_is_a_value():
    one, other = (
        LongRope(short_factor=list(SHORT), long_factor=tuple(LONG), trained_length=5, factor=4) for _ in range(2)
    )
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"short_factor": ()}, r"short_factor must be divisors above zero; got 0.0; give one for each pair"),
        (
            {"long_factor": (1.0, 0.0, 1.0, 1.0)},
            r"long_factor must be divisors above zero; got 0.0; give one for each pair",
        ),
        (
            {"long_factor": (1.0, 2.0)},
            "short_factor and long_factor must have one divisor for each pair; "
            "got 4 and 2; give lists of equal length",
        ),
        ({"trained_length": 1}, "trained_length must be above 1; got 1; give the training length"),
        ({"factor": -4.0}, r"factor must be above zero; got -4.0; give a positive factor"),
        ({"factor": None, "attention_factor": 0.0}, r"attention_factor must be above zero; got 0.0"),
        (
            {"factor": None},
            "factor and attention_factor must be set; got factor None, attention_factor None; give one of them",
        ),
        ({"attention_factor": 1.1}, r"got factor 4.0, attention_factor 1.1; give one of them"),
    ],
)
def test_bad_numbers_are_refused(numbers, message):
    good = {"short_factor": SHORT, "long_factor": LONG, "trained_length": 5, "factor": 4.0}
    with pytest.raises(ValueError, match=message):
        LongRope(**good | numbers)


@pytest.mark.parametrize(("count", "divisors"), [(5, SHORT), (6, LONG), (9, LONG)])
def test_one_length_may_choose_the_set_of_a_sequence(count, divisors):
    spectrum = LongRope(short_factor=SHORT, long_factor=LONG, trained_length=5, factor=4, rates_by="sequence")
    scheme, pos = Rope(head_width=8, spectrum=spectrum), Geometry.causal(count).q_pos
    assert scheme.hooks == ("encode_query", "encode_key")
    x = torch.randn(1, 2, count, 8, dtype=torch.float64)
    for encode in (scheme.encode_query, scheme.encode_key):
        out = encode(x, pos)
        for i in range(count):
            expected = turned(x[:, :, i], i, divisors, spectrum.query_key_scale, "half")
            assert torch.allclose(out[:, :, i], expected, rtol=0, atol=1e-12)


def test_an_unknown_rule_for_the_length_is_refused(untyped):
    with pytest.raises(ValueError, match="no rates_by is named 'batch'; there are: query, sequence"):
        LongRope(short_factor=SHORT, long_factor=LONG, trained_length=5, factor=4, rates_by="batch")


def test_there_is_a_divisor_for_each_pair_that_turns():
    spectrum = LongRope(short_factor=SHORT, long_factor=LONG, trained_length=5, factor=4.0)
    with pytest.raises(ValueError, match="for each rotated pair, or one for all; got 4 for 8 pairs; give as many"):
        Rope(head_width=16, spectrum=spectrum)
    assert Rope(head_width=16, rotary_dim=8, spectrum=spectrum).rotary_dim == 8
    alone, all_alike = (
        LongRope(short_factor=by, long_factor=by, trained_length=5, factor=4.0) for by in ([3.0], [3.0] * 4)
    )
    assert alone.rates(8, 100.0) == all_alike.rates(8, 100.0)


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("factor", "theta", "width", "share", "attention_factor"),
    list(itertools.product([None, 1.0, 32.0], [10_000.0, 500_000.0], [16, 128], [1.0, 0.75], [None, 1.25])),
)
def test_it_agrees_with_transformers(factor, theta, width, share, attention_factor, agrees):
    pairs = int(width * share) // 2
    short, long = ([1 + slope * m for m in range(pairs)] for slope in (0.01, 0.8))
    parameters = {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "factor": factor,
        "attention_factor": attention_factor,
        "original_max_position_embeddings": 512,
        "rope_theta": theta,
        "partial_rotary_factor": share,
    }
    numbers = {"attention_factor": attention_factor} if attention_factor else {"factor": factor or 8.0}
    spectrum = LongRope(short_factor=short, long_factor=long, trained_length=512, **numbers)
    by_hand = Rope(head_width=width, theta=theta, rotary_dim=2 * pairs, spectrum=spectrum)
    of = Rope.from_rope_parameters(parameters, head_width=width, max_length=4096)
    assert of.spectrum == spectrum
    for rope in (by_hand, of):
        agrees(rope, parameters, width, max_length=4096, lengths=[1, 511, 512, 513, 4096])


def test_a_dictionary_without_the_trained_length_is_refused():
    parameters = {"rope_type": "longrope", "short_factor": list(SHORT), "long_factor": list(LONG)}
    with pytest.raises(
        ValueError, match="LongRope needs trained_length; got short_factor, long_factor; give each by keyword"
    ):
        Rope.from_rope_parameters(parameters, head_width=8, max_length=131_072)


def test_a_query_that_asks_alone_is_scored_as_among_the_others():
    spectrum = LongRope(short_factor=SHORT, long_factor=LONG, trained_length=5, factor=4)
    scheme, where = Rope(head_width=8, spectrum=spectrum), Geometry.causal(9)
    q, k = torch.randn(2, 1, 2, 9, 8, dtype=torch.float64)
    whole = scheme.score(q, k, where)
    for i in range(9):
        one = scheme.score(q[:, :, i : i + 1], k, where.block(slice(i, i + 1)))
        assert torch.allclose(one, whole[:, :, i : i + 1], rtol=0, atol=1e-13)
    assert scheme.score(q[:, :, :0], k, where.block(slice(0, 0))).shape == (1, 2, 0, 9)


def test_sequences_on_both_sides_of_the_training_length_are_scored_as_alone():
    spectrum = LongRope(short_factor=SHORT, long_factor=LONG, trained_length=5, factor=4)
    scheme = Rope(head_width=8, spectrum=spectrum)
    # within the training length, across it, and beyond it
    pos = torch.tensor([[0, 1, 2, 3], [3, 4, 5, 6], [20, 21, 22, 23]])[..., None]
    q, k = torch.randn(2, 3, 2, 4, 8)
    whole = scheme.score(q, k, Geometry.from_positions(pos))
    for i in range(3):
        assert torch.equal(
            whole[i : i + 1], scheme.score(q[i : i + 1], k[i : i + 1], Geometry.from_positions(pos[i : i + 1]))
        )
        for j in range(4):
            # the rates of a query are those of its own length for all keys
            rates = spectrum.rates_at(torch.tensor([pos[i, j].item() + 1.0]), 8, scheme.theta)
            angles = (pos[i, j] - pos[i]).double() * rates
            a, b = (x.double().unflatten(-1, (2, 4)).unbind(-2) for x in (q[i, :, j : j + 1], k[i]))
            turned = (a[0] * b[0] + a[1] * b[1]) * angles.cos() + (a[0] * b[1] - a[1] * b[0]) * angles.sin()
            exact = turned.sum(-1) * spectrum.query_key_scale**2
            torch.testing.assert_close(whole[i, :, j].double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.extended
def test_the_contract_holds():
    # the suite's texts are longer than this
    outcomes = check_scheme(Rope, spectrum=LongRope(short_factor=SHORT, long_factor=LONG, trained_length=5, factor=4))
    assert not [outcome for outcome in outcomes if outcome.message]

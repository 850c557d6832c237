import itertools
import math

import pytest
import torch

from ordinate import Geometry
from ordinate.ops.per_query_rotation import per_query_rotary_scores
from ordinate.schemes import Rope, rope
from ordinate.schemes.spectra.dynamic import Dynamic
from ordinate.testing import check_scheme

LENGTHS = [1, 7, 8, 9, 11, 15, 16, 17, 23, 24, 31, 32, 33, 64, 65, 100, 1000, 2**24 + 1]
FORMS = {"transformers": 2.0, "power_of_two": None, "qwen": None}


def grown(form, length, trained, factor):
    # each as its public code has it
    if form == "transformers":
        length = max(length, trained)
        return factor * length / trained - (factor - 1)
    if form == "power_of_two":
        return 2 ** math.ceil(math.log2(math.ceil(length / trained)))
    return max(2 ** math.ceil(math.log2(length / trained) + 1) - 1, 1)


def rates(form, length, trained, factor, width, theta):
    base = theta * grown(form, length, trained, factor) ** (width / (width - 2))
    return [1 / base ** (2 * m / width) for m in range(width // 2)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("width", "theta"), [(4, 10_000.0), (16, 100.0), (128, 500_000.0)])
def test_the_rates_are_those_of_a_base_that_grows_with_the_length(form, width, theta):
    spectrum = Dynamic(trained_length=8, form=form, factor=FORMS[form])
    got = spectrum.rates_at(torch.tensor(LENGTHS).double(), width, theta)
    for row, length in enumerate(LENGTHS):
        expected = rates(form, length, 8, FORMS[form], width, theta)
        assert got[row].tolist() == pytest.approx(expected, rel=1e-12), length


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("transformers", [1, 1, 1.25, 3, 5, 7, 7.25]),
        ("power_of_two", [1, 1, 2, 2, 4, 4, 8]),
        ("qwen", [1, 1, 3, 3, 7, 7, 15]),
    ],
)
def test_the_three_rules_grow_in_steps_or_smoothly(form, expected):
    # four channels: the base is multiplied by the square, and pair 1 divided by the root of that
    spectrum = Dynamic(trained_length=8, form=form, factor=FORMS[form])
    slow = spectrum.rates_at(torch.tensor([1, 8, 9, 16, 24, 32, 33]).double(), 4, 1.0)[:, 1]
    assert (1 / slow).tolist() == pytest.approx(expected, rel=1e-12)


def test_golden_rates():
    spectrum = Dynamic(factor=2, trained_length=2048)
    got = spectrum.rates_at(torch.tensor(8192).double(), 64, 10_000.0)
    assert got[[0, 8, 15, -1]].tolist() == pytest.approx([1, 0.0605216, 0.00520094, 1.90503e-5], rel=1e-5)
    # the second pair of 128 channels gives the base away
    base = spectrum.rates_at(torch.tensor([4096, 8192]).double(), 128, 10_000.0)[:, 1] ** -64
    assert base.tolist() == pytest.approx([30527.7, 72195.7], rel=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_texts_of_the_trained_length_are_left_alone(form):
    spectrum = Dynamic(trained_length=64, form=form, factor=FORMS[form])
    q, k, where = torch.randn(1, 2, 64, 8).double(), torch.randn(1, 2, 64, 8).double(), Geometry.causal(64)
    plain = Rope(head_width=8)
    expected = plain.encode_query(q, where.q_pos) @ plain.encode_key(k, where.k_pos).mT
    assert torch.allclose(Rope(head_width=8, spectrum=spectrum).score(q, k, where), expected, rtol=0, atol=1e-12)


@pytest.mark.covering(1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotated", [4, 8])
def test_each_query_turns_itself_and_its_keys_at_the_rates_of_its_own_length(form, layout, rotated):
    spectrum = Dynamic(trained_length=3, form=form, factor=FORMS[form])
    scheme = Rope(head_width=8, layout=layout, rotary_dim=rotated, theta=100.0, spectrum=spectrum)
    q, k = (torch.randn(1, 2, 9, 8, dtype=torch.float64).requires_grad_() for _ in "qk")
    where = Geometry.causal(9)
    scores, expected = scheme.score(q, k, where), torch.zeros(1, 2, 9, 9, dtype=torch.float64)
    for i in range(9):
        w = rates(form, i + 1, 3, FORMS[form], rotated, 100.0)
        for j in range(9):
            for m in range(rotated // 2):
                one, two = (m, m + rotated // 2) if layout == "half" else (2 * m, 2 * m + 1)
                a, b = q[:, :, i, one], q[:, :, i, two]
                c, d = k[:, :, j, one], k[:, :, j, two]
                cos, sin = math.cos((i - j) * w[m]), math.sin((i - j) * w[m])
                expected[:, :, i, j] += (a * c + b * d) * cos + (a * d - b * c) * sin
            expected[:, :, i, j] += (q[:, :, i, rotated:] * k[:, :, j, rotated:]).sum(-1)
    assert torch.allclose(scores, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(scores)
    for got, wanted in zip(
        torch.autograd.grad((scores * upstream).sum(), (q, k)),
        torch.autograd.grad((expected * upstream).sum(), (q, k)),
        strict=True,
    ):
        assert torch.allclose(got, wanted, rtol=0, atol=1e-12)


def test_one_length_may_set_the_rates_of_a_sequence():
    q, k = torch.randn(2, 1, 2, 9, 8, dtype=torch.float64)
    whole, each = (
        Rope(head_width=8, spectrum=Dynamic(trained_length=3, factor=2.0, rates_by=by))
        for by in ("sequence", "query")
    )
    assert (whole.hooks, each.hooks) == (("encode_query", "encode_key"), ("score",))
    assert not whole.shift_invariant
    for count in (2, 9):
        where = Geometry.causal(count)
        turned = whole.encode_query(q[:, :, :count], where.q_pos) @ whole.encode_key(k[:, :, :count], where.k_pos).mT
        alone = each.score(q[:, :, :count], k[:, :, :count], where)
        # the last query has the length of the sequence; within the trained length all have the same rates
        rows = slice(None) if count < 3 else slice(-1, None)
        assert torch.allclose(turned[:, :, rows], alone[:, :, rows], rtol=0, atol=1e-12)
        assert whole.score(q[:, :, :count], k[:, :, :count], where) is None
    assert (turned - alone).abs().max() > 0.1
    assert whole.encode_query(q[:, :, :0], Geometry.causal(9).q_pos[:, :0]).shape == (1, 2, 0, 8)


def test_only_a_long_text_read_at_once_needs_rates_for_each_query(monkeypatch):
    spectrum = Dynamic(trained_length=8, factor=2.0)
    scheme, called = Rope(head_width=8, spectrum=spectrum), []
    monkeypatch.setattr(
        rope, "per_query_rotary_scores", lambda *given: called.append(1) or per_query_rotary_scores(*given)
    )
    q, k = torch.randn(2, 1, 2, 30, 8, dtype=torch.float64)
    short, newest, long = Geometry.causal(8), Geometry.causal(1, cached=29), Geometry.causal(30)
    scheme.score(q[:, :, :8], k[:, :, :8], short)
    last = scheme.score(q[:, :, 29:], k, newest)
    assert not called
    whole = scheme.score(q, k, long)
    assert called
    assert torch.allclose(last, whole[:, :, 29:], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"trained_length": 0, "factor": 2.0}, "trained_length must be above zero; got 0; give a positive"),
        ({"trained_length": 8, "factor": -1.0}, "factor must be above zero; got -1.0; give a positive factor"),
        (
            {"trained_length": 8},
            "and used by it only; got factor None with form 'transformers'; add it or leave it out",
        ),
        (
            {"trained_length": 8, "factor": 2.0, "form": "qwen"},
            "and used by it only; got factor 2.0 with form 'qwen'",
        ),
        (
            {"trained_length": 8, "factor": 2.0, "rates_by": "batch"},
            "no rates_by is named 'batch'; there are: query, sequence",
        ),
        ({"trained_length": 8, "form": "vllm"}, "no form of dynamic is named 'vllm'; there are: power_of_two, qwen"),
    ],
)
def test_bad_numbers_are_refused(untyped, numbers, message):
    with pytest.raises(ValueError, match=message):
        Dynamic(**numbers)


def test_one_pair_of_channels_is_too_few():
    with pytest.raises(ValueError, match=r"dynamic needs two channel pairs; got 2 channels; rotate more channels"):
        Rope(head_width=2, spectrum=Dynamic(trained_length=8, factor=2.0))


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("factor", "theta", "width", "share", "trained"),
    list(itertools.product([1.0, 2.0, 8.5], [10_000.0, 500_000.0], [16, 128], [1.0, 0.5], [8, 2048])),
)
def test_it_agrees_with_transformers_at_every_length(factor, theta, width, share, trained, agrees):
    parameters = {"rope_type": "dynamic", "factor": factor, "rope_theta": theta, "partial_rotary_factor": share}
    spectrum = Dynamic(trained_length=trained, factor=factor)
    by_hand = Rope(head_width=width, theta=theta, rotary_dim=int(width * share), spectrum=spectrum)
    lengths = [1, trained - 1, trained, trained + 1, 2 * trained, 100 * trained]
    for scheme in (by_hand, Rope.from_rope_parameters(parameters, head_width=width, max_length=trained)):
        agrees(scheme, parameters, width, max_length=trained, lengths=lengths)


@pytest.mark.extended
@pytest.mark.parametrize("form", FORMS)
def test_the_contract_holds(form):
    # the suite's texts are longer than this
    outcomes = check_scheme(Rope, spectrum=Dynamic(trained_length=5, form=form, factor=FORMS[form]))
    assert not [outcome for outcome in outcomes if outcome.message]

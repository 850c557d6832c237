import numpy as np
import pytest
import torch

from ordinate import Decoder, Shape, VisionShape, VisionTransformer
from ordinate.ops.analytic_heads import first_token_head, offset_head_sinusoidal
from ordinate.ops.sinusoids import sinusoids
from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.probing.measures.attention_by_offset import (
    ReplacePattern,
    SyntheticPattern,
    attention_profile,
    attention_profile_and_maps,
)
from ordinate.probing.measures.head_detection import decay_fit, max_offset_p_value
from ordinate.probing.measures.samples import ForwardBudget, subsample
from ordinate.probing.probes.positional_heads import PositionalHeads
from ordinate.testing.analytic_model import AnalyticModel, random_sequences

CODE = 24


def planted(strength=16.0, *, causal=True):
    """A model that keeps tokens and positions in columns of their own, and two heads in closed form in layer 1."""
    subject = AnalyticModel("learned", width=64, causal=causal, heads=4)
    table = sinusoids(torch.arange(512)[None, :, None], CODE, theta=1e4, form="vaswani", odd="paper")[0]
    # small beside positions, or the norm would make some keys longer than others
    subject.tokens *= 0.2
    subject.tokens[:, 16:] = 0
    subject.tokens -= subject.tokens[:, :16].mean(1, keepdim=True) * (torch.arange(64) < 16)
    # beside its negative, so that a norm takes no mean off
    subject.table[:] = torch.cat([torch.zeros(512, 16, dtype=torch.float64), table, -table], 1)
    own = subject.weights[0]
    own.query[:2], own.key[:2] = 0, 0
    back = offset_head_sinusoidal(CODE, 3, strength)
    width = own.query.shape[-1]
    # heads are narrower than the code: the fastest pairs are enough
    own.query[0, 16 : 16 + CODE], own.key[0, 16 : 16 + CODE] = back.query[:, :width], back.key[:, :width]
    return subject


def test_a_planted_head_is_detected_and_replaceable():
    finding = PositionalHeads().measure(planted(), random_sequences(16, 48))
    found = {one.name: one for one in finding.estimates}
    assert found["heads that attend to a fixed offset"].value == 1
    most = found["largest attention mass at an offset: layer 1, head 1, 3 back"]
    assert most.low > 0.9
    assert found["the same with shuffled tokens: layer 1, head 1, 3 back"].value > 0.9
    even = found["increase, detected heads replaced by uniform attention"]
    closed = found["increase, detected heads replaced by closed-form patterns"]
    assert abs(closed.value) < 0.2 * max(abs(even.value), 0.02)
    assert finding.tables[0].rows[0][:3] == (1, 1, "3 back")
    assert "attend to a fixed offset (1 at 3 back)" in finding.answer


def test_a_first_token_head_is_detected():
    subject = planted()
    code = subject.table[:, 16 : 16 + CODE]
    head, own = first_token_head(code, 4.0), subject.weights[0]
    # what always is the same takes the place of a bias of the queries
    subject.tokens[:, 0] = 1.0
    width = own.query.shape[-1]
    own.query[1] = 0
    own.query[1, 0] = head.query_bias[:width]
    own.key[1, 16 : 16 + CODE] = head.key[:, :width]
    finding = PositionalHeads().measure(subject, random_sequences(16, 48))
    found = {one.name: one for one in finding.estimates}
    assert found["heads that attend to the first token"].value == 1
    assert any(row[:2] == (1, 2) and row[7] > 0.7 for row in finding.tables[0].rows)


def test_attention_mass_by_offset_matches_a_loop():
    subject = AnalyticModel("learned", causal=False)
    chosen = subsample(subject.info, random_sequences(4, 30), ForwardBudget(1))
    seen = attention_profile(subject, chosen)

    class Whole(ReplacePattern):
        def attention_pattern(self, layer, weights):
            kept.append(weights)

    kept = []
    subject.forward(Inputs(chosen.ids), Whole(subject.info, []))
    own = kept[1][2, 1]
    reach = seen.offsets[-1]
    rows = range(reach + 1, 30 - reach)
    left = sum(float(own[i, 1:].sum()) for i in rows)
    for place, offset in enumerate(seen.offsets):
        expected = sum(float(own[i, i - offset]) for i in rows) / left
        np.testing.assert_allclose(seen.mass[2, 1, 1, place], expected, rtol=1e-9)
    far = sum(float(own[i, j]) * abs(i - j) for i in rows for j in range(1, 30)) / left
    np.testing.assert_allclose(seen.distance[2, 1, 1], far, rtol=1e-9)


def test_uniform_attention_has_the_null_profile():
    subject = AnalyticModel("none")
    for own in subject.weights:
        own.query[:] = 0
    seen = attention_profile(subject, subsample(subject.info, random_sequences(4, 30), ForwardBudget(1)))
    np.testing.assert_allclose(seen.mass, seen.mass[..., :1].repeat(len(seen.offsets), -1))
    np.testing.assert_allclose(seen.first_token_mass, seen.uniform_first_token_mass)


def test_common_score_variance_is_due_to_position():
    alike = attention_profile_and_maps(
        planted(), subsample(planted().info, random_sequences(40, 24), ForwardBudget(1))
    )[1].common_variance_share
    assert alike[0, 0] > 0.8
    plain = AnalyticModel("none", causal=False, layers=1)
    assert (
        attention_profile_and_maps(plain, subsample(plain.info, random_sequences(200, 24), ForwardBudget(1)))[1]
        .common_variance_share.abs()
        .max()
        < 0.05
    )


def test_fixed_offset_p_values_are_calibrated():
    random = np.random.default_rng(0)
    p = [max_offset_p_value(random.dirichlet(np.ones(17), 8), seed, 199) for seed in range(300)]
    assert 0.02 <= np.mean(np.array(p) <= 0.05) <= 0.09
    shared = random.dirichlet(np.ones(17), 8) + 0.3 * (np.arange(17) == 4)
    assert max_offset_p_value(shared, 0, 199) <= 0.005


def test_decay_is_detected_and_its_p_values_are_calibrated():
    random, distance = np.random.default_rng(0), np.arange(17)
    p = [decay_fit(random.dirichlet(np.ones(17), 8), distance, seed, 199)[2] for seed in range(300)]
    assert 0.02 <= np.mean(np.array(p) <= 0.05) <= 0.09
    slope, straight, p = decay_fit(np.exp(-0.3 * distance)[None].repeat(8, 0), distance, 0, 199)
    np.testing.assert_allclose([slope, straight, p], [0.3, 1.0, 1 / 200], rtol=1e-9)
    assert decay_fit(np.exp(0.3 * distance)[None].repeat(8, 0), distance, 0, 199)[1:] == (pytest.approx(-1.0), 1.0)


def test_alibi_heads_decay_with_distance():
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=50, width=32, heads=4, layers=1, scheme="alibi", max_length=64)).eval()
    finding = PositionalHeads().measure(attach(model), random_sequences(16, 48))
    found = {one.name: one for one in finding.estimates}
    # the steepest head attends to its own token; the flattest, slope 2^-8, is nearly uniform
    assert found["heads whose attention decays with distance"].value == 2
    slopes = {row[1]: row[6] for row in finding.tables[0].rows}
    np.testing.assert_allclose([slopes[head] for head in (2, 3, 4)], [2**-4, 2**-6, 2**-8], atol=2e-3)
    assert "2 decay with distance" in finding.answer


def test_closed_form_patterns():
    facts = AnalyticModel("none").info
    heads, targets = (
        [(0, 0), (0, 1), (1, 0)],
        [SyntheticPattern(offset=2), SyntheticPattern(), SyntheticPattern(slope=0.5)],
    )
    given = torch.full((1, 2, 9, 9), 0.1)
    first, second = ReplacePattern(facts, heads, targets).attention_pattern(0, given)[0]
    assert first.diagonal(-2).tolist() == [1.0] * 7
    assert second[:, 0].tolist() == [1.0] * 9
    falling = ReplacePattern(facts, heads, targets).attention_pattern(1, given)[0, 0]
    by_hand = torch.exp(-0.5 * (8 - torch.arange(9.0)))
    torch.testing.assert_close(falling[8], by_hand / by_hand.sum())
    assert (falling.triu(1) == 0).all()
    torch.testing.assert_close(
        ReplacePattern(facts, heads).attention_pattern(1, given)[0, 0, 8], torch.full((9,), 1 / 9)
    )


def test_a_model_without_positions_has_no_positional_heads():
    for causal in (True, False):
        finding = PositionalHeads().measure(AnalyticModel("none", causal=causal), random_sequences(16, 32))
        assert finding.estimates[0].value == 0
        assert "None of 4 heads" in finding.answer


def test_images_are_measured_by_patches():
    torch.manual_seed(0)
    shape = VisionShape(vocabulary=3, width=32, heads=2, layers=2, image=(16, 16), patch=(4, 4), channels=1)
    finding = PositionalHeads().measure(
        attach(VisionTransformer(shape).eval()), ProbeData(None, torch.randn(6, 1, 16, 16), "noise")
    )
    assert finding.tables[0].rows


def test_short_texts_are_rejected():
    with pytest.raises(NotApplicable, match="12 positions"):
        PositionalHeads().measure(AnalyticModel(), random_sequences(6, 10))


def test_the_same_seed_gives_the_same_finding():
    one, other = (
        PositionalHeads().measure(planted(), random_sequences(), 3).model_copy(update={"seconds": 0.0})
        for _ in range(2)
    )
    assert one == other
    assert one.model_validate_json(one.model_dump_json()) == one

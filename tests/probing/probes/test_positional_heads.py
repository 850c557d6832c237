from dataclasses import replace

import numpy as np
import pytest
import torch

from ordinate import Decoder, Encoder, EncoderShape, Shape, VisionShape, VisionTransformer
from ordinate.ops.analytic_heads import first_token_head, offset_head_sinusoidal
from ordinate.ops.sinusoids import sinusoids
from ordinate.ops.stats.permutation_tests import largest_mean_test
from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.probing.measures.attention_by_offset import ProfileHooks, attention_profile, attention_profile_and_maps
from ordinate.probing.measures.attention_decay import fit_decay
from ordinate.probing.measures.samples import ForwardBudget, subsample
from ordinate.probing.measures.synthetic_patterns import ReplacePattern, SyntheticPattern
from ordinate.probing.probes.positional_heads import PositionalHeads
from ordinate.testing.analytic_model import AnalyticModel, random_sequences

CODE = 24


def planted(strength=16.0, *, causal=True, offset=3):
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
    back = offset_head_sinusoidal(CODE, offset, strength)
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
    assert "1 attend to a fixed offset (1 at 3 back)" in finding.answer
    assert "With shuffled tokens 1 of these 1 do the same" in finding.answer


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
    assert any(row[:2] == (1, 2) and row[9] > 0.7 for row in finding.tables[0].rows)


@pytest.mark.parametrize("causal", [True, False])
def test_the_profile_matches_a_loop(causal):
    subject = AnalyticModel("learned", causal=causal)
    chosen = subsample(subject.info, random_sequences(4, 30), ForwardBudget(1))
    seen = attention_profile(subject, chosen)

    class Whole(ReplacePattern):
        def attention_pattern(self, layer, weights):
            kept.append(weights)

    kept = []
    subject.forward(Inputs(chosen.ids), Whole(subject.info, []))
    own = kept[1][2, 1]
    assert seen.offsets == [x for x in range(1 if causal else -22, 22) if x]
    others = {i: [j for j in range(1, i if causal else 30) if j != i] for i in range(30)}
    rows = {i: float(own[i, others[i]].sum()) for i in range(30)}
    for place, offset in enumerate(seen.offsets):
        queries = [i for i in range(30) if i - offset in others[i]]
        found = sum(float(own[i, i - offset]) for i in queries)
        left = sum(float(own[i, 1:].sum()) for i in queries)
        np.testing.assert_allclose(seen.mass[2, 1, 1, place], found / left, rtol=1e-9)
        even = sum(rows[i] / len(others[i]) for i in queries)
        np.testing.assert_allclose(seen.excess[2, 1, 1, place], found - even, atol=1e-12)
    pairs = [(i, j) for i in range(30) for j in others[i]]
    far = sum(float(own[i, j]) * abs(i - j) for i, j in pairs) / sum(rows.values())
    np.testing.assert_allclose(seen.distance[2, 1, 1], far, rtol=1e-9)
    even = sum(rows[i] * np.mean([abs(i - j) for j in others[i]]) for i in range(30) if others[i])
    np.testing.assert_allclose(seen.uniform_distance[2, 1, 1], even / sum(rows.values()), rtol=1e-9)


def test_uniform_attention_has_the_null_profile():
    subject = AnalyticModel("none")
    for own in subject.weights:
        own.query[:] = 0
    seen = attention_profile(subject, subsample(subject.info, random_sequences(4, 30), ForwardBudget(1)))
    has_the_null_profile(seen)


def has_the_null_profile(seen):
    np.testing.assert_allclose(seen.mass, np.broadcast_to(seen.uniform_mass[:, None], seen.mass.shape), atol=1e-12)
    np.testing.assert_allclose(seen.excess, 0, atol=1e-12)
    first = seen.uniform_first_token_mass[:, None]
    np.testing.assert_allclose(seen.first_token_mass, np.broadcast_to(first, seen.first_token_mass.shape))
    np.testing.assert_allclose(seen.distance, seen.uniform_distance)


def windowed(kind, shape, windows):
    """A model of two layers, one with a sliding window, without positions."""
    torch.manual_seed(0)
    sizes = {"vocabulary": 50, "width": 32, "heads": 4, "layers": 2, "scheme": "none", "max_length": 64}
    return kind(shape(**sizes, sliding_windows=windows)).double().eval()


@pytest.mark.parametrize(("kind", "shape"), [(Decoder, Shape), (Encoder, EncoderShape)])
def test_uniform_attention_in_a_window_has_the_null_profile(kind, shape):
    model = windowed(kind, shape, (6, None))
    with torch.no_grad():
        for block in model.blocks:
            block.mixer.project.weight[:64] = 0
    subject = attach(model)
    seen = attention_profile(subject, subsample(subject.info, random_sequences(4, 30), ForwardBudget(1)))
    has_the_null_profile(seen)
    # queries of the first layer see five keys before them, and an encoder five after them
    ahead = [offset for offset, mass in zip(seen.offsets, seen.uniform_mass[0], strict=True) if mass > 0]
    assert ahead == [x for x in range(1 if kind is Decoder else -5, 6) if x]
    assert seen.uniform_mass[1].min() > 0


@pytest.mark.parametrize(("kind", "shape"), [(Decoder, Shape), (Encoder, EncoderShape)])
def test_a_window_is_no_decay_with_distance(kind, shape):
    finding = PositionalHeads().measure(attach(windowed(kind, shape, (6, 9))), random_sequences(24, 48))
    assert finding.estimates[2].name == "heads whose attention decays with distance"
    assert finding.estimates[2].value == 0
    assert finding.grade == "no"
    assert "Offsets up to 8 were tested" in finding.answer
    assert "in layer 2" in finding.null


def test_uniform_attention_in_place_of_a_head_stays_in_its_window():
    model = windowed(Decoder, Shape, (3, None))
    subject, kept = attach(model), []

    class Seen(ReplacePattern):
        def attention(self, layer, seen):
            kept.append(seen.pattern[0, 0])

    subject.forward(Inputs(torch.arange(8)[None]), Seen(subject.info, [(0, 0), (1, 0)]))
    inside = torch.ones(8, 8).tril().triu(-2).double()
    torch.testing.assert_close(kept[0], inside / inside.sum(-1, keepdim=True))
    assert (kept[1][7] == 1 / 8).all()


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


def test_a_head_twenty_tokens_back_is_detected():
    finding = PositionalHeads().measure(planted(offset=20), random_sequences(16, 48))
    assert "1 attend to a fixed offset (1 at 20 back)" in finding.answer
    assert finding.grade == "yes"
    assert "20 back" in finding.effect.name
    assert finding.effect.low > 0.9


def test_the_largest_of_many_means_is_corrected_for_their_number():
    random = np.random.default_rng(0)
    p = [largest_mean_test(random.normal(size=(12, 40)), seed, 199).min() for seed in range(200)]
    assert 0.01 <= np.mean(np.array(p) <= 0.05) <= 0.1
    values = random.normal(size=(12, 40))
    values[:, 7] += 3
    p = largest_mean_test(values, 0)
    assert p.argmin() == 7
    assert p[7] <= 0.002
    assert largest_mean_test(np.zeros((5, 2)), 0).tolist() == [1.0, 1.0]


def alibi(heads, **facts):
    """A decoder with ALiBi alone: queries and keys are zero."""
    torch.manual_seed(0)
    shape = Shape(vocabulary=50, width=32, heads=heads, layers=1, scheme="alibi", max_length=64, **facts)
    model = Decoder(shape).eval()
    with torch.no_grad():
        model.blocks[0].mixer.project.weight[:64] = 0
    return attach(model)


def test_all_heads_of_alibi_decay_with_distance():
    finding = PositionalHeads().measure(alibi(8), random_sequences(16, 64))
    found = {one.name: one for one in finding.estimates}
    assert found["heads whose attention decays with distance"].value == 8
    slopes = {row[1]: row[6] for row in finding.tables[0].rows}
    np.testing.assert_allclose([slopes[head] for head in range(1, 9)], [2.0**-n for n in range(1, 9)], rtol=3e-3)
    assert finding.headline.startswith("Yes. Steepest decay of attention with distance: layer 1, head 1: 0.5")


def test_the_fitted_decay_is_that_of_maximum_likelihood():
    subject = planted()
    seen = attention_profile(subject, subsample(subject.info, random_sequences(6, 24), ForwardBudget(1)))
    place, fitted = (1, 2), fit_decay(seen, 0)

    def likelihood(slope):
        fallen = (seen.pairs[1].decaying(slope) * seen.pairs[1].distance).sum(-1).numpy()
        return float(seen.rows[:, *place].mean(0) @ fallen)

    np.testing.assert_allclose(likelihood(fitted.slope[place]), seen.distance[:, *place].mean(), rtol=1e-3)
    assert fitted.low[place] < fitted.slope[place] < fitted.high[place]
    # a head that attends three tokens back is near, but its profile is no decay
    assert fitted.slope[0, 0] > 0.05
    assert fitted.explained[0, 0] < 0.5


@pytest.mark.parametrize("slope", [0.01, 0.1, 1.0])
def test_how_texts_divide_attention_between_queries_does_not_widen_the_interval_of_a_decay(slope):
    facts = replace(AnalyticModel("none").info, layers=1, heads=1)
    watch = ProfileHooks(facts, 24)
    fallen = watch.pairs[0].decaying(slope)
    draw = torch.Generator().manual_seed(0)
    # the rest of each query's attention is on the first token, another share in each text
    share = torch.rand(6, 1, 24, 1, generator=draw, dtype=torch.float64)
    weights = share * fallen
    weights[..., 0] += 1 - weights.sum(-1)
    watch.attention_pattern(0, weights)
    seen = watch.profile()
    assert seen.distance.std() > 0.005
    fitted = fit_decay(seen, 0)
    # between the tabulated slopes the expected distance is interpolated
    np.testing.assert_allclose(fitted.slope, slope, rtol=0.02)
    np.testing.assert_allclose(fitted.high - fitted.low, 0, atol=0.01 * slope)


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
        assert finding.grade == "no"
        assert "None of 4 heads" in finding.answer
        assert f"Offsets up to {23 if causal else 24} were tested" in finding.answer


def test_images_are_measured_by_patches():
    torch.manual_seed(0)
    shape = VisionShape(vocabulary=3, width=32, heads=2, layers=2, image=(16, 16), patch=(4, 4), channels=1)
    finding = PositionalHeads().measure(
        attach(VisionTransformer(shape).eval()), ProbeData(None, torch.randn(6, 1, 16, 16), "noise")
    )
    assert finding.tables[0].rows


def test_few_texts_tell_nothing():
    finding = PositionalHeads().measure(planted(), random_sequences(4, 48))
    assert finding.grade == "cannot be told"


@pytest.mark.parametrize("mass", [2.0, 1.0, 0.0, float("nan")])
def test_a_mass_that_no_head_can_reach_is_refused(mass):
    with pytest.raises(ValueError, match=r"mass .*must be"):
        PositionalHeads(mass=mass)


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

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ordinate import Decoder, Encoder, EncoderShape, Shape
from ordinate.ops.convex_hull import hull_distance_bound
from ordinate.ops.symmetry import (
    effective_ranks,
    exchange_similarity,
    null_symmetry,
    positive_share,
    summed_symmetry,
    symmetry,
    symmetry_by_offset,
)
from ordinate.probing._adapter import Hooks, Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing.measures.alternative_normalisers import SigmoidAttention, SinkhornAttention
from ordinate.probing.measures.low_rank_heads import low_rank_intervention, qk_of_tokens, qk_weights
from ordinate.probing.measures.qk_interventions import (
    RandomlyRotatedQueries,
    SwappedQK,
    SymmetrisedScores,
    score_symmetry,
)
from ordinate.probing.measures.qk_symmetry import measure_qk_symmetry
from ordinate.probing.measures.relative_rotation import CaptureRotations, measured_offsets, relative_rotations
from ordinate.probing.measures.samples import ForwardBudget, subsample
from ordinate.probing.measures.score_scale import RemovedScale, relative_entropy, score_scales, share_outside_hull
from ordinate.probing.probes.extrapolation import Extrapolation
from ordinate.probing.probes.qk_roles import QKRoles
from ordinate.testing.analytic_model import AnalyticModel, apply_rope, random_sequences


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_definition(m):
    return torch.trace(m @ m) / m.square().sum()


def test_symmetry_is_that_of_the_whole_matrix():
    q, k = drawn(4, 10, 3), drawn(2, 10, 3, seed=1)
    # grouped-query attention: adjacent query heads share a key head
    m = q @ k.repeat_interleave(2, 0).mT
    torch.testing.assert_close(symmetry(q, k), torch.stack([by_definition(one) for one in m]))
    np.testing.assert_allclose(summed_symmetry(q, k), by_definition(m.sum(0)))
    tiled = q @ k.repeat(2, 1, 1).mT
    assert (symmetry(q, k) - torch.stack([by_definition(one) for one in tiled])).abs().max() > 0.01
    torch.testing.assert_close(symmetry(q, q), torch.ones(4, dtype=torch.float64))
    other = k[:1].expand(4, -1, -1)
    turned = symmetry(torch.cat([q, -other], -1), torch.cat([other, q], -1))
    torch.testing.assert_close(turned, -torch.ones(4, dtype=torch.float64))
    assert effective_ranks(q, k, 1 - 1e-12) == [3] * 4


@pytest.mark.parametrize(("width", "d"), [(64, 64), (256, 16)])
def test_random_heads_are_at_the_null(width, d):
    found = symmetry(drawn(300, width, d), drawn(300, width, d, seed=1))
    assert abs(float(found.mean()) - 1 / width) < 4 * math.sqrt(2 / 300) / width
    assert abs(float(found.std()) * width / math.sqrt(2) - 1) < 0.15


def test_relative_rotations_of_rope():
    subject = AnalyticModel("rope", width=16, layers=2)
    chosen = subsample(subject.info, random_sequences(2, 32), ForwardBudget(1))
    found = relative_rotations(subject, chosen, 8)
    assert set(found) == {0, 1}
    eye = torch.eye(8, dtype=torch.float64)[None, None]
    here, there = (apply_rope(eye, torch.full((1, 8), place)) for place in (9, 7))
    torch.testing.assert_close(found[0][0, measured_offsets((32,)).index((2,))], (here @ there.mT)[0, 0])
    own = subject.weights[0]
    by_offset = symmetry_by_offset(own.query, own.key, found[0])
    torch.testing.assert_close(by_offset[:, 0], symmetry(own.query, own.key))
    assert relative_rotations(AnalyticModel("learned"), chosen, 8) == {}


@pytest.mark.extended
@pytest.mark.parametrize(("width", "d", "steep"), [(32, 8, False), (64, 16, True), (48, 48, True)])
def test_symmetry_p_values_are_calibrated(width, d, steep):
    sizes = torch.arange(1.0, d + 1, dtype=torch.float64) ** -float(steep)
    q, k = drawn(200, width, d) * sizes, drawn(200, width, d, seed=1)
    null = (null_symmetry(q, k, 0)[:4000] - 1 / width).abs()
    p = (null >= (symmetry(q, k) - 1 / width).abs()).double().mean(0)
    assert 0.015 <= (p <= 0.05).double().mean() <= 0.1
    assert 0.4 <= p.mean() <= 0.6


def test_distance_to_the_convex_hull():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    points = torch.tensor([[0.5, 0.2], [2.0, 0.5], [1.0, 1.0], [2.0, 2.0]], dtype=torch.float64)
    found = hull_distance_bound(points, square, torch.ones(4, 4, dtype=torch.bool), 400)
    torch.testing.assert_close(found, torch.tensor([0, 1, 0, 2**0.5], dtype=torch.float64), atol=1e-2, rtol=0)
    # the hull of a single vertex is that vertex
    alone = hull_distance_bound(points[:1], square, torch.tensor([[False, False, True, False]]))
    torch.testing.assert_close(alone, (points[:1] - square[2]).norm(dim=-1))
    mixed = torch.softmax(3 * drawn(40, 12), -1)
    vertices = drawn(12, 30, seed=1)
    assert hull_distance_bound(mixed @ vertices, vertices, torch.ones(40, 12, dtype=torch.bool)).max() < 1e-9
    assert hull_distance_bound(mixed @ vertices / 2, vertices, torch.ones(40, 12, dtype=torch.bool)).min() > 0.1


@pytest.mark.parametrize(("width", "own"), [(768, 0.88), (64, 0.80)])
def test_shared_qk_heads_attend_to_themselves(width, own):
    x = drawn(128, width)
    q, k = (x @ drawn(width, 64, seed=seed) / width**0.5 for seed in (1, 2))
    tied, free = (torch.softmax(q @ other.T / 8, -1) for other in (q, k))
    # at smaller widths the norms of queries vary more
    assert abs(float(tied.diagonal().mean()) - own) < 0.03
    assert free.diagonal().mean() < 0.015
    assert (tied - tied.T).norm() / tied.norm() < 0.08 < 1 < (free - free.T).norm() / free.norm()
    scores = q @ q.T
    # l_ii + l_jj >= 2 l_ij: no shared-QK head attends to the previous token rather than to itself everywhere
    assert (scores.diagonal()[:, None] + scores.diagonal() - 2 * scores).min() > -1e-9


def test_a_scale_after_the_softmax_leaves_the_hull_of_the_values():
    subject, rows = AnalyticModel("learned"), []

    class Sums(RemovedScale):
        def attention(self, layer, seen):
            rows.append(seen.pattern.sum(-1))

    given, chosen = Inputs(random_sequences(2).ids), subsample(subject.info, random_sequences(), ForwardBudget(1))
    scale = score_scales(subject, chosen)
    np.testing.assert_allclose(scale, 8**-0.5)
    subject.forward(given, Sums(scale, after_softmax=True))
    np.testing.assert_allclose(rows[0], 8**-0.5)
    subject.forward(given, Sums(scale, after_softmax=False))
    np.testing.assert_allclose(rows[-1], 1)
    assert share_outside_hull(subject, chosen, Hooks()).max() == 0
    assert share_outside_hull(subject, chosen, RemovedScale(scale, after_softmax=True)).min() > 0.3
    # rows that sum to 1 give convex combinations of values, whether or not columns do; sigmoid rows need not
    both = AnalyticModel("learned", causal=False)
    assert share_outside_hull(both, chosen, SinkhornAttention(both.info)).max() == 0
    assert share_outside_hull(subject, chosen, SigmoidAttention()).mean() > 0.5
    with pytest.raises(NotApplicable, match="later tokens"):
        SinkhornAttention(subject.info)


def test_the_scale_is_measured_with_biases_or_without_a_scale():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 32, "n_layer": 1, "n_head": 4}
    bloom = attach(transformers.BloomForCausalLM(transformers.BloomConfig(**sizes)).eval())
    chosen = subsample(bloom.info, random_sequences(4, 16), ForwardBudget(1))
    np.testing.assert_allclose(score_scales(bloom, chosen), 8**-0.5, rtol=1e-3)
    t5 = transformers.T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4)
    subject = attach(transformers.T5ForConditionalGeneration(t5).eval())
    np.testing.assert_allclose(score_scales(subject, chosen), 1.0, rtol=1e-3)
    finding = QKRoles().measure(subject, random_sequences(4, 16))
    assert any("are not scaled" in caveat for caveat in finding.caveats)


def test_each_layer_has_its_own_scale():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
    config = transformers.GPT2Config(**sizes, scale_attn_by_inverse_layer_idx=True)
    subject = attach(transformers.GPT2LMHeadModel(config).double().eval())
    chosen = subsample(subject.info, random_sequences(4, 16), ForwardBudget(1))
    scales = score_scales(subject, chosen)
    np.testing.assert_allclose(scales, [8**-0.5 / layer for layer in (1, 2, 3)])
    found = {one.name: one.value for one in QKRoles().measure(subject, random_sequences(4, 16)).estimates}
    np.testing.assert_allclose(found["scale of the scores, layer 1"], 8**-0.5)
    np.testing.assert_allclose(found["scale of the scores, layer 3"], 8**-0.5 / 3)


@pytest.mark.parametrize("scheme", ["shaw", "deberta", "transformer_xl", "t5", "alibi"])
def test_biases_that_depend_on_content_are_no_part_of_the_scale(scheme):
    torch.manual_seed(0)
    shape = Shape(vocabulary=50, width=32, heads=4, layers=2, scheme=scheme, max_length=64)
    subject = attach(Decoder(shape).double().eval())
    with torch.no_grad():
        for parameter in subject.model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    chosen = subsample(subject.info, random_sequences(4, 16), ForwardBudget(1))
    np.testing.assert_allclose(score_scales(subject, chosen), 8**-0.5, rtol=1e-6)


@pytest.mark.parametrize("symmetric", [True, False])
def test_scores_within_windows_have_a_symmetry(symmetric):
    torch.manual_seed(0)
    sizes = {"vocabulary": 50, "width": 32, "heads": 4, "layers": 2, "scheme": "none", "max_length": 64}
    model = Encoder(EncoderShape(**sizes, sliding_windows=(5, None))).double().eval()
    for block in model.blocks if symmetric else ():
        block.mixer.project.weight.data[32:64] = block.mixer.project.weight[:32]
    subject = attach(model)
    chosen = subsample(subject.info, random_sequences(12, 32), ForwardBudget(1))
    found, scores = score_symmetry(subject, chosen), []

    class Kept(Hooks):
        def attention_scores(self, layer, x):
            scores.append(x.clone())

    subject.forward(chosen.inputs(slice(0, 1)), Kept())
    for layer, hidden in ((0, 5), (1, 99)):
        own = np.ma.masked_invalid(scores[layer][0, 2].numpy())
        own = own - own.mean(1)[:, None]
        own = (own - own.mean(0)[None]).filled(0.0)
        np.testing.assert_allclose(found[0, layer, 2], (own * own.T).sum() / (own * own).sum())
        assert (scores[layer][0, 2].isinf().any() == (hidden < 32)).item()
    assert (found.min() > 0.8) == symmetric


def test_the_entropy_of_uniform_attention_is_1_in_a_window_too():
    torch.manual_seed(0)
    shape = Shape(vocabulary=50, width=32, heads=4, layers=2, scheme="none", sliding_windows=(5, None), max_length=64)
    model = Decoder(shape).double().eval()
    with torch.no_grad():
        for block in model.blocks:
            block.mixer.project.weight[:64] = 0
    subject = attach(model)
    found = relative_entropy(subject, subsample(subject.info, random_sequences(4, 32), ForwardBudget(1)))
    np.testing.assert_allclose(found[:, 0], 1)
    np.testing.assert_allclose(found[:, 1], 1, atol=0.01)


def test_symmetric_and_antisymmetric_parts_sum_to_the_scores():
    subject = AnalyticModel("rope", causal=True, layers=1)
    given = Inputs(random_sequences(2).ids)

    def kept(scale, sign):
        class Kept(SymmetrisedScores):
            def attention_scores(self, layer, scores):
                found.append(scores if sign == 0 else super().attention_scores(layer, scores))
                return found[-1]

        subject.forward(given, Kept(scale, sign))
        return found[-1]

    found = []
    plain, even, odd = (kept([8**-0.5], sign) for sign in (0, 1, -1))
    seen = plain > -1e4
    assert torch.equal(seen, even > -1e4)
    torch.testing.assert_close((even + odd)[seen], plain[seen])
    # a head with equal queries and keys is symmetric, and uniform without the symmetric part
    subject.weights[0].key[:] = subject.weights[0].query
    plain, even, odd = (kept([8**-0.5], sign) for sign in (0, 1, -1))
    torch.testing.assert_close(even[seen], plain[seen])
    assert odd[seen].abs().max() < 1e-9


def test_swapping_transposes_scores_and_rotation_keeps_norms():
    subject = AnalyticModel("rope", causal=False, layers=1)

    class Kept(SwappedQK):
        def attention_scores(self, layer, scores):
            found.append(scores)

    found, given = [], Inputs(random_sequences(2).ids)
    subject.forward(given, Kept(queries=False, keys=False))
    subject.forward(given, Kept(queries=True, keys=True))
    torch.testing.assert_close(found[1], found[0].mT)
    q = drawn(2, 4, 5, 8)
    torch.testing.assert_close(RandomlyRotatedQueries(0).qkv(0, q, q, q)[0].norm(dim=-1), q.norm(dim=-1))
    # shared key heads become the mean of the queries of their group
    _, shared, _ = SwappedQK(queries=False, keys=True).qkv(0, q, q[:, :2], q[:, :2])
    torch.testing.assert_close(shared, torch.stack([q[:, :2].mean(1), q[:, 2:].mean(1)], 1))


class Scores(Hooks):
    def __init__(self, inner):
        self.inner, self.found = inner, []

    def qk_before_rope(self, layer, q, k):
        return self.inner.qk_before_rope(layer, q, k)

    def qkv(self, layer, q, k, v):
        return self.inner.qkv(layer, q, k, v)

    def attention_scores(self, layer, scores):
        self.found.append(scores)


def scores_of(subject, watch):
    seen = Scores(watch)
    subject.forward(Inputs(random_sequences(2).ids), seen)
    return seen.found[0]


def test_truncation_is_the_best_low_rank_approximation():
    subject = AnalyticModel("none", causal=False, layers=1, width=32, heads=2)
    weights = measure_qk_symmetry(subject, subsample(subject.info, random_sequences(), ForwardBudget(1)), 0).value
    layers = qk_weights(weights)
    own, x = subject.weights[0], torch.nn.functional.layer_norm(subject.tokens[random_sequences(2).ids], (32,))
    u, s, v = torch.linalg.svd(own.query @ own.key.mT)
    m = u[..., :3] * s[:, None, :3] @ v[:, :3]
    expected = torch.einsum("biw,hwx,bjx->bhij", x, m, x) / 4
    torch.testing.assert_close(scores_of(subject, low_rank_intervention(layers, weights, 3)), expected)
    torch.testing.assert_close(
        scores_of(subject, low_rank_intervention(layers, weights, 16)), scores_of(subject, Hooks())
    )
    assert (
        scores_of(subject, low_rank_intervention(layers, weights, 3, 0)) - expected
    ).norm() > 0.2 * expected.norm()


def test_truncation_on_tokens_keeps_the_directions_in_use():
    subject = AnalyticModel("none", causal=False, layers=1, width=32, heads=2)
    own = subject.weights[0]
    # the largest direction of the weights acts on columns in which tokens are nearly 0
    subject.tokens[:, :4] *= 1e-3
    own.query[:, :4, :2] *= 30
    own.key[:, :4, :2] *= 30
    chosen = subsample(subject.info, random_sequences(), ForwardBudget(1))
    weights, plain = measure_qk_symmetry(subject, chosen, 0).value, scores_of(subject, Hooks())
    by_weights, by_tokens = (
        (scores_of(subject, low_rank_intervention(layers, weights, 4)) - plain).norm() / plain.norm()
        for layers in (qk_weights(weights), qk_of_tokens(subject, chosen, weights))
    )
    assert by_tokens < 0.8 * by_weights


def test_under_rope_one_subspace_fits_all_rotations():
    subject = AnalyticModel("rope", layers=1, width=32, heads=2)
    # a head whose queries span two directions needs no others at any offset
    subject.weights[0].query[..., 2:] = 0
    weights = measure_qk_symmetry(subject, subsample(subject.info, random_sequences(), ForwardBudget(1)), 0).value
    assert set(weights.rotations) == {0}
    layers = qk_weights(weights)
    torch.testing.assert_close(
        scores_of(subject, low_rank_intervention(layers, weights, 2)), scores_of(subject, Hooks())
    )
    assert (
        scores_of(subject, low_rank_intervention(layers, weights, 1)) - scores_of(subject, Hooks())
    ).abs().nan_to_num().max() > 0.1
    # the same holds for the queries and keys of tokens
    seen = qk_of_tokens(subject, subsample(subject.info, random_sequences(), ForwardBudget(1)), weights)
    torch.testing.assert_close(
        scores_of(subject, low_rank_intervention(seen, weights, 2)), scores_of(subject, Hooks())
    )
    unknown = replace(weights, rotations=None)
    with pytest.raises(NotApplicable, match="could not be measured"):
        low_rank_intervention(layers, unknown, 2)


def test_symmetry_at_an_offset_is_that_of_the_whole_matrix_where_heads_share_keys():
    q, k, turn = drawn(4, 10, 6), drawn(2, 10, 6, seed=1), torch.linalg.qr(drawn(3, 6, 6, seed=2)).Q
    shared = k.repeat_interleave(2, 0)
    by_hand = [[by_definition(one @ own @ other.T) for own in turn] for one, other in zip(q, shared, strict=True)]
    torch.testing.assert_close(symmetry_by_offset(q, k, turn[None]), torch.tensor(by_hand, dtype=torch.float64))


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_planted_symmetry_is_detected():
    subject = AnalyticModel("learned", causal=False, width=32, heads=4, head=False)
    subject.weights[0].key[:2] = subject.weights[0].query[:2]
    found = named(QKRoles().measure(subject, random_sequences()))
    assert found["heads more symmetric than chance"].value == 2
    for own in subject.weights:
        own.key[:] = own.query
    finding = QKRoles().measure(subject, random_sequences())
    found = named(finding)
    assert found["symmetric part of W_q W_k^T, median head"].value > 0.999
    assert found["heads whose queries and keys could be one matrix"].value == 8
    assert finding.grade == "no"
    np.testing.assert_allclose(
        score_symmetry(subject, subsample(subject.info, random_sequences(), ForwardBudget(1))), 1.0
    )
    # queries and keys are equal: swapping them changes nothing
    assert abs(found["increase, queries and keys swapped"].value) < 1e-12
    assert "8 of 8 heads are more symmetric than chance" in finding.answer


def test_the_negative_of_a_matrix_can_be_exchanged_with_it_but_is_not_the_same():
    subject = AnalyticModel("learned", causal=False, width=32, heads=4, head=False)
    for own in subject.weights:
        own.key[:] = -own.query
    finding = QKRoles().measure(subject, random_sequences())
    found = named(finding)
    assert found["symmetric part of W_q W_k^T, median head"].value > 0.999
    assert found["positive part of the symmetric part, median head"].value < 1e-9
    assert "could be exchanged in 8 of 8 heads, and be one matrix in 0" in finding.answer
    assert abs(found["increase, queries and keys swapped"].value) < 1e-12
    assert found["increase, queries replaced by keys"].low > 0


def test_queries_and_keys_that_differ_are_graded_so():
    finding = QKRoles().measure(AnalyticModel("learned", width=32, head=False), random_sequences(16))
    assert finding.headline.startswith("Yes. Increase, ")
    assert finding.effect.low > 0
    # without attention scores there is nothing to tell from
    blind = AnalyticModel("none", width=32, head=False)
    for own in blind.weights:
        own.query[:] = 0
        own.key[:] = 0
    assert QKRoles().measure(blind, random_sequences(16)).grade == "cannot be told"


def test_exchange_is_that_of_the_scores_themselves():
    q, k, turn = drawn(4, 10, 6), drawn(2, 10, 6, seed=1), torch.linalg.qr(drawn(3, 6, 6, seed=2)).Q
    found = exchange_similarity(q, k, turn[None])
    for head, (one, other) in enumerate(zip(q, k.repeat_interleave(2, 0), strict=True)):
        for place, own in enumerate(turn):
            a, b = (x.flatten() for x in (one @ own @ other.T, other @ own @ one.T))
            torch.testing.assert_close(found[head, place], a @ b / a.norm() / b.norm())
    # equal matrices can be exchanged under any rotation, though M is symmetric without one only
    torch.testing.assert_close(exchange_similarity(k, k, turn[None]), torch.ones(2, 3, dtype=torch.float64))
    assert symmetry_by_offset(k, k, turn[None]).max() < 0.9


def test_the_positive_part_is_that_of_the_whole_matrix():
    q, k = drawn(4, 10, 3), drawn(2, 10, 3, seed=1)
    m = q @ k.repeat_interleave(2, 0).mT
    values = torch.linalg.eigvalsh((m + m.mT) / 2)
    torch.testing.assert_close(positive_share(q, k), values.clamp(min=0).square().sum(1) / values.square().sum(1))
    torch.testing.assert_close(positive_share(q, q), torch.ones(4, dtype=torch.float64))
    assert positive_share(q, -q).max() < 1e-20
    assert positive_share(0 * q, k).tolist() == [0.0] * 4


@pytest.mark.extended
def test_random_heads_are_not_significant():
    def found_by(seed):
        subject = AnalyticModel("none", heads=4, layers=4, width=32, seed=seed)
        chosen = subsample(subject.info, random_sequences(4, 12), ForwardBudget(1))
        return measure_qk_symmetry(subject, chosen, seed).value

    models = [found_by(seed) for seed in range(36)]
    # family-wise: about one model in twenty may have a significant head, for any number of heads
    assert np.mean([(own.adjusted_p <= 0.05).any() for own in models]) <= 0.17
    held = [own.null_interval[0] <= np.median(own.symmetry) <= own.null_interval[1] for own in models]
    assert np.mean(held) >= 0.83


def test_the_null_interval_of_the_median_is_that_of_independent_heads():
    subject = AnalyticModel("none", heads=8, layers=1, width=64)
    chosen = subsample(subject.info, random_sequences(4, 12), ForwardBudget(1))
    low, high = measure_qk_symmetry(subject, chosen, 0).value.null_interval
    # standard deviation of the median of 8 heads: 1.25 sqrt(2) / width / sqrt(8); draws in common gave that of one
    assert high - low < 2 * 1.96 * 1.25 * math.sqrt(2 / 8) / 64 * 1.3


def test_grouped_heads_of_a_model_are_measured():
    torch.manual_seed(0)
    shape = Shape(vocabulary=50, width=32, heads=4, kv_heads=2, layers=2, scheme="rope", max_length=64)
    finding = QKRoles().measure(attach(Decoder(shape).eval()), random_sequences(6, 32))
    found = named(finding)
    assert found["symmetry at offset 1, median head"].value is not None
    assert found["increase, queries replaced by keys"].value != 0
    assert found["increase, keys replaced by queries"].value != 0
    assert found["increase, rank 4"].value < found["increase, rank 4, random directions"].value


@pytest.mark.extended
def test_partially_rotated_heads_are_measured():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 50, "n_positions": 40, "rotary_dim": 4}
    subject = attach(transformers.GPTJForCausalLM(transformers.GPTJConfig(**sizes)).eval())
    finding = QKRoles().measure(subject, random_sequences(4, 24))
    assert "antisymmetric part of W_q W_k^T, median head" in named(finding)
    assert {"symmetry at offset 16, median head", "increase, rank 4 from scores on real tokens"} <= set(
        named(finding)
    )
    assert not [caveat for caveat in finding.caveats if "low-rank" in caveat or "positional_heads" in caveat]
    found = Extrapolation(shifts=(1,)).measure(subject, random_sequences(4, 24))
    assert not [caveat for caveat in found.caveats if "precision" in caveat]


def test_partially_visible_heads_are_rejected():
    with pytest.raises(NotApplicable, match="only 4 of 8 channels of a head are visible"):
        CaptureRotations(8, (17,)).qk_before_rope(0, torch.zeros(8, 2, 3, 4), torch.zeros(8, 2, 3, 4))


@pytest.mark.extended
def test_the_same_seed_gives_the_same_finding():
    one, other = (
        QKRoles().measure(AnalyticModel("rope"), random_sequences(), 3).model_copy(update={"seconds": 0.0})
        for _ in range(2)
    )
    assert one == other
    assert one.model_validate_json(one.model_dump_json()) == one

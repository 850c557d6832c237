import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ordinate import Decoder, Shape
from ordinate.attachment import attach
from ordinate.measures.meeting import Exchanged, Mixed, Symmetric, transposed
from ordinate.measures.narrowing import narrowed, of_tokens, of_weights
from ordinate.measures.normalising import Sigmoids, Sinkhorns
from ordinate.measures.presenting import Passes, sample
from ordinate.measures.scaling import Scaled, out_of_hull, scale_of
from ordinate.measures.turning import Turns, offsets, turns
from ordinate.measures.weighing import weighed
from ordinate.ops.hull import beyond
from ordinate.ops.symmetry import by_chance, ranks, summed_symmetry, symmetry, symmetry_by_offset
from ordinate.probes.extrapolation import Extrapolation
from ordinate.probes.roles import Roles
from ordinate.subject import Inputs, Unfit, Watch
from ordinate.testing.plain import Plain, rotated, texts


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_definition(m):
    return torch.trace(m @ m) / m.square().sum()


def test_symmetry_is_that_of_the_whole_matrix():
    q, k = drawn(4, 10, 3), drawn(2, 10, 3, seed=1)
    # heads of queries that stand together share a head of keys
    m = q @ k.repeat_interleave(2, 0).mT
    torch.testing.assert_close(symmetry(q, k), torch.stack([by_definition(one) for one in m]))
    np.testing.assert_allclose(summed_symmetry(q, k), by_definition(m.sum(0)))
    tiled = q @ k.repeat(2, 1, 1).mT
    assert (symmetry(q, k) - torch.stack([by_definition(one) for one in tiled])).abs().max() > 0.01
    torch.testing.assert_close(symmetry(q, q), torch.ones(4, dtype=torch.float64))
    other = k[:1].expand(4, -1, -1)
    turned = symmetry(torch.cat([q, -other], -1), torch.cat([other, q], -1))
    torch.testing.assert_close(turned, -torch.ones(4, dtype=torch.float64))
    assert ranks(q, k, 1 - 1e-12) == [3] * 4


@pytest.mark.parametrize(("width", "d"), [(64, 64), (256, 16)])
def test_random_heads_are_at_the_null(width, d):
    found = symmetry(drawn(300, width, d), drawn(300, width, d, seed=1))
    assert abs(float(found.mean()) - 1 / width) < 4 * math.sqrt(2 / 300) / width
    assert abs(float(found.std()) * width / math.sqrt(2) - 1) < 0.15


def test_by_what_rope_turns_is_found():
    subject = Plain("rope", width=16, layers=2)
    chosen = sample(subject.facts, texts(2, 32), Passes(1))
    found = turns(subject, chosen, 8)
    assert set(found) == {0, 1}
    eye = torch.eye(8, dtype=torch.float64)[None, None]
    here, there = (rotated(eye, torch.full((1, 8), place)) for place in (9, 7))
    torch.testing.assert_close(found[0][0, offsets((32,)).index((2,))], (here @ there.mT)[0, 0])
    own = subject.weights[0]
    by_offset = symmetry_by_offset(own.query, own.key, found[0])
    torch.testing.assert_close(by_offset[:, 0], symmetry(own.query, own.key))
    assert turns(Plain("learned"), chosen, 8) == {}


@pytest.mark.parametrize(("width", "d", "steep"), [(32, 8, False), (64, 16, True), (48, 48, True)])
def test_chance_says_how_far_from_its_mean_a_head_is_as_often_as_it_does(width, d, steep):
    sizes = torch.arange(1.0, d + 1, dtype=torch.float64) ** -float(steep)
    q, k = drawn(200, width, d) * sizes, drawn(200, width, d, seed=1)
    null = (by_chance(q, k, 0)[:4000] - 1 / width).abs()
    p = (null >= (symmetry(q, k) - 1 / width).abs()).double().mean(0)
    assert 0.015 <= (p <= 0.05).double().mean() <= 0.1
    assert 0.4 <= p.mean() <= 0.6


def test_a_point_is_beyond_the_hull_by_its_distance():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    points = torch.tensor([[0.5, 0.2], [2.0, 0.5], [1.0, 1.0], [2.0, 2.0]], dtype=torch.float64)
    found = beyond(points, square, torch.ones(4, 4, dtype=torch.bool), 400)
    torch.testing.assert_close(found, torch.tensor([0, 1, 0, 2**0.5], dtype=torch.float64), atol=1e-2, rtol=0)
    # of one vertex alone a hull is that vertex
    alone = beyond(points[:1], square, torch.tensor([[False, False, True, False]]))
    torch.testing.assert_close(alone, (points[:1] - square[2]).norm(dim=-1))
    mixed = torch.softmax(3 * drawn(40, 12), -1)
    vertices = drawn(12, 30, seed=1)
    assert beyond(mixed @ vertices, vertices, torch.ones(40, 12, dtype=torch.bool)).max() < 1e-9
    assert beyond(mixed @ vertices / 2, vertices, torch.ones(40, 12, dtype=torch.bool)).min() > 0.1


@pytest.mark.parametrize(("width", "own"), [(768, 0.88), (64, 0.80)])
def test_tied_heads_look_at_themselves(width, own):
    x = drawn(128, width)
    q, k = (x @ drawn(width, 64, seed=seed) / width**0.5 for seed in (1, 2))
    tied, free = (torch.softmax(q @ other.T / 8, -1) for other in (q, k))
    # narrower tokens make queries of less even length
    assert abs(float(tied.diagonal().mean()) - own) < 0.03
    assert free.diagonal().mean() < 0.015
    assert (tied - tied.T).norm() / tied.norm() < 0.08 < 1 < (free - free.T).norm() / free.norm()
    scores = q @ q.T
    # l_ii + l_jj >= 2 l_ij: no tied head looks at the one before rather than at itself everywhere
    assert (scores.diagonal()[:, None] + scores.diagonal() - 2 * scores).min() > -1e-9


def test_a_scale_outside_leaves_the_hull_of_the_values():
    subject, rows = Plain("learned"), []

    class Sums(Scaled):
        def attended(self, layer, seen):
            rows.append(seen.weights.sum(-1))

    given, chosen = Inputs(texts(2).ids), sample(subject.facts, texts(), Passes(1))
    scale = scale_of(subject, chosen)
    np.testing.assert_allclose(scale, 8**-0.5)
    subject.read(given, Sums(scale, outside=True))
    np.testing.assert_allclose(rows[0], 8**-0.5)
    subject.read(given, Sums(scale, outside=False))
    np.testing.assert_allclose(rows[-1], 1)
    assert out_of_hull(subject, chosen, Watch()).max() == 0
    assert out_of_hull(subject, chosen, Scaled(scale, outside=True)).min() > 0.3
    # rows that sum to one give means of values, columns that do so too or not; those of a sigmoid need not
    both = Plain("learned", causal=False)
    assert out_of_hull(both, chosen, Sinkhorns(both.facts)).max() == 0
    assert out_of_hull(subject, chosen, Sigmoids()).mean() > 0.5
    with pytest.raises(Unfit, match="of those after it"):
        Sinkhorns(subject.facts)


def test_the_scale_is_found_where_biases_are_added_or_none_is_there():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 32, "n_layer": 1, "n_head": 4}
    bloom = attach(transformers.BloomForCausalLM(transformers.BloomConfig(**sizes)).eval())
    chosen = sample(bloom.facts, texts(4, 16), Passes(1))
    np.testing.assert_allclose(scale_of(bloom, chosen), 8**-0.5, rtol=1e-3)
    t5 = transformers.T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4)
    subject = attach(transformers.T5ForConditionalGeneration(t5).eval())
    np.testing.assert_allclose(scale_of(subject, chosen), 1.0, rtol=1e-3)
    finding = Roles().measure(subject, texts(4, 16))
    assert any("are not scaled" in caveat for caveat in finding.caveats)


def test_the_two_parts_of_scores_make_the_whole():
    subject = Plain("rope", causal=True, layers=1)
    given = Inputs(texts(2).ids)

    def kept(scale, sign):
        class Kept(Symmetric):
            def scores(self, layer, scores):
                found.append(scores if sign == 0 else super().scores(layer, scores))
                return found[-1]

        subject.read(given, Kept(scale, sign))
        return found[-1]

    found = []
    plain, even, odd = (kept(8**-0.5, sign) for sign in (0, 1, -1))
    seen = plain > -1e4
    assert torch.equal(seen, even > -1e4)
    torch.testing.assert_close((even + odd)[seen], plain[seen])
    # a head whose keys are its queries is symmetric already, and looks nowhere in particular without that part
    subject.weights[0].key[:] = subject.weights[0].query
    plain, even, odd = (kept(8**-0.5, sign) for sign in (0, 1, -1))
    torch.testing.assert_close(even[seen], plain[seen])
    assert odd[seen].abs().max() < 1e-9


def test_exchanging_transposes_scores_and_mixing_keeps_lengths():
    subject = Plain("rope", causal=False, layers=1)

    class Kept(Exchanged):
        def scores(self, layer, scores):
            found.append(scores)

    found, given = [], Inputs(texts(2).ids)
    subject.read(given, Kept(queries=False, keys=False))
    subject.read(given, Kept(queries=True, keys=True))
    torch.testing.assert_close(found[1], found[0].mT)
    q = drawn(2, 4, 5, 8)
    torch.testing.assert_close(Mixed(0).marked(0, q, q, q)[0].norm(dim=-1), q.norm(dim=-1))
    # heads of keys that several of queries share become the mean of those
    _, shared, _ = Exchanged(queries=False, keys=True).marked(0, q, q[:, :2], q[:, :2])
    torch.testing.assert_close(shared, torch.stack([q[:, :2].mean(1), q[:, 2:].mean(1)], 1))


class Scores(Watch):
    def __init__(self, inner):
        self.inner, self.found = inner, []

    def raw(self, layer, q, k):
        return self.inner.raw(layer, q, k)

    def marked(self, layer, q, k, v):
        return self.inner.marked(layer, q, k, v)

    def scores(self, layer, scores):
        self.found.append(scores)


def scores_of(subject, watch):
    seen = Scores(watch)
    subject.read(Inputs(texts(2).ids), seen)
    return seen.found[0]


def test_fewer_directions_are_the_best_matrix_of_that_rank():
    subject = Plain("none", causal=False, layers=1, width=32, heads=2)
    weights = weighed(subject, sample(subject.facts, texts(), Passes(1)), 0, {})
    layers = of_weights(weights)
    own, x = subject.weights[0], torch.nn.functional.layer_norm(subject.tokens[texts(2).ids], (32,))
    u, s, v = torch.linalg.svd(own.query @ own.key.mT)
    m = u[..., :3] * s[:, None, :3] @ v[:, :3]
    expected = torch.einsum("biw,hwx,bjx->bhij", x, m, x) / 4
    torch.testing.assert_close(scores_of(subject, narrowed(layers, weights, 3)), expected)
    torch.testing.assert_close(scores_of(subject, narrowed(layers, weights, 16)), scores_of(subject, Watch()))
    assert (scores_of(subject, narrowed(layers, weights, 3, 0)) - expected).norm() > 0.2 * expected.norm()


def test_what_tokens_use_is_kept_where_weights_would_keep_something_else():
    subject = Plain("none", causal=False, layers=1, width=32, heads=2)
    own = subject.weights[0]
    # the largest direction of the weights meets columns in which tokens are nearly nothing
    subject.tokens[:, :4] *= 1e-3
    own.query[:, :4, :2] *= 30
    own.key[:, :4, :2] *= 30
    chosen = sample(subject.facts, texts(), Passes(1))
    weights, plain = weighed(subject, chosen, 0, {}), scores_of(subject, Watch())
    by_weights, by_tokens = (
        (scores_of(subject, narrowed(layers, weights, 4)) - plain).norm() / plain.norm()
        for layers in (of_weights(weights), of_tokens(subject, chosen, weights))
    )
    assert by_tokens < 0.8 * by_weights


def test_under_rope_one_subspace_serves_all_turns():
    subject = Plain("rope", layers=1, width=32, heads=2)
    # a head whose queries have two directions needs no others at any distance
    subject.weights[0].query[..., 2:] = 0
    weights = weighed(subject, sample(subject.facts, texts(), Passes(1)), 0, {})
    assert set(weights.turns) == {0}
    layers = of_weights(weights)
    torch.testing.assert_close(scores_of(subject, narrowed(layers, weights, 2)), scores_of(subject, Watch()))
    assert (
        scores_of(subject, narrowed(layers, weights, 1)) - scores_of(subject, Watch())
    ).abs().nan_to_num().max() > 0.1
    # the same is seen from what queries and keys tokens have
    seen = of_tokens(subject, sample(subject.facts, texts(), Passes(1)), weights)
    torch.testing.assert_close(scores_of(subject, narrowed(seen, weights, 2)), scores_of(subject, Watch()))
    unknown = replace(weights, turns=None)
    with pytest.raises(Unfit, match="were not seen"):
        narrowed(layers, unknown, 2)


def test_symmetry_at_an_offset_is_that_of_the_whole_matrix_where_heads_share_keys():
    q, k, turn = drawn(4, 10, 6), drawn(2, 10, 6, seed=1), torch.linalg.qr(drawn(3, 6, 6, seed=2)).Q
    shared = k.repeat_interleave(2, 0)
    by_hand = [[by_definition(one @ own @ other.T) for own in turn] for one, other in zip(q, shared, strict=True)]
    torch.testing.assert_close(symmetry_by_offset(q, k, turn[None]), torch.tensor(by_hand, dtype=torch.float64))


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_planted_symmetry_is_found():
    subject = Plain("learned", causal=False, width=32, heads=4)
    subject.weights[0].key[:2] = subject.weights[0].query[:2]
    found = named(Roles().measure(subject, texts()))
    assert found["heads more symmetric than chance"].value == 2
    for own in subject.weights:
        own.key[:] = own.query
    finding = Roles().measure(subject, texts())
    found = named(finding)
    assert found["symmetry of a head, median"].value > 0.999
    np.testing.assert_allclose(transposed(subject, sample(subject.facts, texts(), Passes(1))), 1.0)
    # then keys are queries: nothing changes when they are exchanged
    assert abs(found["rise, queries and keys exchanged"].value) < 1e-12
    assert "8 of 8 heads are more symmetric" in finding.answer


def test_chance_makes_no_head_symmetric():
    def found_by(seed):
        subject = Plain("none", heads=4, layers=4, width=32, seed=seed)
        return weighed(subject, sample(subject.facts, texts(4, 12), Passes(1)), seed, {})

    models = [found_by(seed) for seed in range(36)]
    # one model in twenty may have a head that seems symmetric, whatever the number of heads
    assert np.mean([(own.q <= 0.05).any() for own in models]) <= 0.17
    held = [own.chance[0] <= np.median(own.folded) <= own.chance[1] for own in models]
    assert np.mean(held) >= 0.83


def test_grouped_heads_of_a_model_are_measured():
    torch.manual_seed(0)
    shape = Shape(vocabulary=50, width=32, heads=4, kv_heads=2, layers=2, scheme="rope", max_length=64)
    finding = Roles().measure(attach(Decoder(shape).eval()), texts(6, 32))
    found = named(finding)
    assert found["symmetry of a head at offset 1, median"].value is not None
    assert found["rise, keys in the place of queries"].value != 0
    assert found["rise, queries in the place of keys"].value != 0
    assert found["rise, rank 4"].value < found["rise, rank 4 at random"].value


def test_heads_of_which_only_a_part_is_rotated_are_measured_whole():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 50, "n_positions": 40, "rotary_dim": 4}
    subject = attach(transformers.GPTJForCausalLM(transformers.GPTJConfig(**sizes)).eval())
    finding = Roles().measure(subject, texts(4, 24))
    assert "symmetry of a head, median" in named(finding)
    assert {"symmetry of a head at offset 16, median", "rise, rank 4 of scores on tokens"} <= set(named(finding))
    assert not [caveat for caveat in finding.caveats if "directions" in caveat or "offsets" in caveat]
    found = Extrapolation(shifts=(1,)).measure(subject, texts(4, 24))
    assert not [caveat for caveat in found.caveats if "how exactly" in caveat]


def test_heads_of_which_only_a_part_is_seen_are_not_turned():
    with pytest.raises(Unfit, match="only 4 of 8 channels of a head are seen"):
        Turns(8, (17,)).raw(0, torch.zeros(8, 2, 3, 4), torch.zeros(8, 2, 3, 4))


def test_the_same_seed_gives_the_same_finding():
    one, other = (Roles().measure(Plain("rope"), texts(), 3).model_copy(update={"seconds": 0.0}) for _ in range(2))
    assert one == other
    assert one.model_validate_json(one.model_dump_json()) == one

import math

import numpy as np
import pytest
import torch

from ordinate import Decoder, Shape
from ordinate.attachment import attach
from ordinate.measures.meeting import OFFSETS, Exchanged, Mixed, Scaled, transposed, turns
from ordinate.measures.presenting import sample
from ordinate.ops.symmetry import ranks, summed_symmetry, symmetry, symmetry_by_offset
from ordinate.probes.roles import Roles
from ordinate.subject import Inputs, Unfit
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
    found = turns(subject, texts(1, 32).ids[0], 8)
    assert set(found) == {0, 1}
    eye = torch.eye(8, dtype=torch.float64)[None, None]
    here, there = (rotated(eye, torch.full((1, 8), place)) for place in (9, 7))
    torch.testing.assert_close(found[0][OFFSETS.index(2)], (here @ there.mT)[0, 0])
    own = subject.weights[0]
    by_offset = symmetry_by_offset(own.query, own.key, found[0])
    torch.testing.assert_close(by_offset[:, 0], symmetry(own.query, own.key))
    assert turns(Plain("learned"), texts(1, 32).ids[0], 8) == {}


def test_tied_heads_look_at_themselves():
    x, m = drawn(128, 64), drawn(64, 64, seed=1) / 8
    q, k = x @ m, x @ drawn(64, 64, seed=2) / 8
    tied, free = (torch.softmax(q @ other.T / 8, -1) for other in (q, k))
    assert tied.diagonal().mean() > 0.75
    assert free.diagonal().mean() < 0.03
    scores = q @ q.T
    # l_ii + l_jj >= 2 l_ij: no tied head looks at the one before rather than at itself everywhere
    assert (scores.diagonal()[:, None] + scores.diagonal() - 2 * scores).min() > -1e-9


def test_a_scale_outside_leaves_the_hull_of_the_values():
    subject, rows = Plain("learned"), []

    class Sums(Scaled):
        def attended(self, layer, seen):
            rows.append(seen.weights.sum(-1))

    given = Inputs(texts(2).ids)
    subject.read(given, Sums(8, outside=True))
    np.testing.assert_allclose(rows[0], 8**-0.5)
    subject.read(given, Sums(8, outside=False))
    np.testing.assert_allclose(rows[-1], 1)


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
    with pytest.raises(Unfit, match="share one of keys"):
        Exchanged(queries=False, keys=True).marked(0, q, q[:, :2], q[:, :2])


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
    np.testing.assert_allclose(transposed(subject, sample(subject.facts, texts(), passes=1)), 1.0)
    # then keys are queries: nothing changes when they are exchanged
    assert abs(found["rise, queries and keys exchanged"].value) < 1e-12
    assert "8 of 8 heads are more symmetric" in finding.answer


def test_chance_makes_no_head_symmetric():
    found = [
        named(Roles().measure(Plain("none", heads=4, layers=4, width=32, seed=seed), texts(4, 12)))
        for seed in range(20)
    ]
    wrong = [sum(one[f"heads {side} symmetric than chance"].value for side in ("more", "less")) for one in found]
    assert np.mean(np.array(wrong) > 0) <= 0.2


def test_grouped_heads_of_a_model_are_measured():
    torch.manual_seed(0)
    shape = Shape(vocabulary=50, width=32, heads=4, kv_heads=2, layers=2, scheme="rope", max_length=64)
    finding = Roles().measure(attach(Decoder(shape).eval()), texts(6, 32))
    found = named(finding)
    assert found["symmetry of a head at offset 1, median"].value is not None
    assert found["rise, keys in the place of queries"].value != 0
    assert any("share one of keys" in caveat for caveat in finding.caveats)


def test_the_same_seed_gives_the_same_finding():
    one, other = (Roles().measure(Plain("rope"), texts(), 3).model_copy(update={"seconds": 0.0}) for _ in range(2))
    assert one == other
    assert one.model_validate_json(one.model_dump_json()) == one

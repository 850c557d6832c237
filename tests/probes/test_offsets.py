import numpy as np
import pytest
import torch

from ordinate import Decoder, Shape, Vision, VisionShape
from ordinate.attachment import attach
from ordinate.measures.detecting import falls, peaks
from ordinate.measures.gaze import Even, Target, looked, looked_and_mapped
from ordinate.measures.presenting import Passes, sample
from ordinate.ops.constructed import behind_sinusoidal, first
from ordinate.ops.waves import sinusoids
from ordinate.probe import Material
from ordinate.probes.offsets import Offsets
from ordinate.subject import Inputs, Unfit
from ordinate.testing.plain import Plain, texts

CODE = 24


def planted(strength=16.0, *, causal=True):
    """A model that keeps tokens and positions in columns of their own, and two heads in closed form in layer 1."""
    subject = Plain("learned", width=64, causal=causal, heads=4)
    table = sinusoids(torch.arange(512)[None, :, None], CODE, theta=1e4, form="vaswani", odd="paper")[0]
    # small beside positions, or the norm would make some keys longer than others
    subject.tokens *= 0.2
    subject.tokens[:, 16:] = 0
    subject.tokens -= subject.tokens[:, :16].mean(1, keepdim=True) * (torch.arange(64) < 16)
    # beside its negative, so that a norm takes no mean off
    subject.table[:] = torch.cat([torch.zeros(512, 16, dtype=torch.float64), table, -table], 1)
    own = subject.weights[0]
    own.query[:2], own.key[:2] = 0, 0
    back = behind_sinusoidal(CODE, 3, strength)
    width = own.query.shape[-1]
    # heads are narrower than the code: the fastest pairs are enough
    own.query[0, 16 : 16 + CODE], own.key[0, 16 : 16 + CODE] = back.query[:, :width], back.key[:, :width]
    return subject


def test_a_planted_head_is_found_and_its_form_is_enough():
    finding = Offsets().measure(planted(), texts(16, 48))
    found = {one.name: one for one in finding.estimates}
    assert found["heads that look at one offset"].value == 1
    most = found["most on one offset: layer 1, head 1, 3 back"]
    assert most.low > 0.9
    assert found["the same, tokens shuffled: layer 1, head 1, 3 back"].value > 0.9
    even = found["rise, the heads found look at all alike"]
    closed = found["rise, heads in closed form in their place"]
    assert abs(closed.value) < 0.2 * max(abs(even.value), 0.02)
    assert finding.tables[0].rows[0][:3] == (1, 1, "3 back")
    assert "look at one offset (1 at 3 back)" in finding.answer


def test_a_head_that_looks_at_the_first_token_is_found():
    subject = planted()
    code = subject.table[:, 16 : 16 + CODE]
    head, own = first(code, 4.0), subject.weights[0]
    # what always is the same takes the place of a bias of the queries
    subject.tokens[:, 0] = 1.0
    width = own.query.shape[-1]
    own.query[1] = 0
    own.query[1, 0] = head.query_bias[:width]
    own.key[1, 16 : 16 + CODE] = head.key[:, :width]
    finding = Offsets().measure(subject, texts(16, 48))
    found = {one.name: one for one in finding.estimates}
    assert found["heads that look at the first token"].value == 1
    assert any(row[:2] == (1, 2) and row[7] > 0.7 for row in finding.tables[0].rows)


def test_weights_are_counted_where_they_are():
    subject = Plain("learned", causal=False)
    chosen = sample(subject.facts, texts(4, 30), Passes(1))
    seen = looked(subject, chosen)

    class Whole(Even):
        def weights(self, layer, weights):
            kept.append(weights)

    kept = []
    subject.read(Inputs(chosen.ids), Whole(subject.facts, []))
    own = kept[1][2, 1]
    reach = seen.offsets[-1]
    rows = range(reach + 1, 30 - reach)
    left = sum(float(own[i, 1:].sum()) for i in rows)
    for place, offset in enumerate(seen.offsets):
        expected = sum(float(own[i, i - offset]) for i in rows) / left
        np.testing.assert_allclose(seen.mass[2, 1, 1, place], expected, rtol=1e-9)
    far = sum(float(own[i, j]) * abs(i - j) for i in rows for j in range(1, 30)) / left
    np.testing.assert_allclose(seen.distance[2, 1, 1], far, rtol=1e-9)


def test_all_alike_is_even():
    subject = Plain("none")
    for own in subject.weights:
        own.query[:] = 0
    seen = looked(subject, sample(subject.facts, texts(4, 30), Passes(1)))
    np.testing.assert_allclose(seen.mass, seen.mass[..., :1].repeat(len(seen.offsets), -1))
    np.testing.assert_allclose(seen.sink, seen.even_sink)


def test_scores_of_places_are_alike_in_all_texts_and_those_of_tokens_are_not():
    alike = looked_and_mapped(planted(), sample(planted().facts, texts(40, 24), Passes(1)))[1].alike
    assert alike[0, 0] > 0.8
    plain = Plain("none", causal=False, layers=1)
    assert looked_and_mapped(plain, sample(plain.facts, texts(200, 24), Passes(1)))[1].alike.abs().max() < 0.05


def test_chance_finds_an_offset_as_often_as_it_says():
    random = np.random.default_rng(0)
    p = [peaks(random.dirichlet(np.ones(17), 8), seed, 199) for seed in range(300)]
    assert 0.02 <= np.mean(np.array(p) <= 0.05) <= 0.09
    shared = random.dirichlet(np.ones(17), 8) + 0.3 * (np.arange(17) == 4)
    assert peaks(shared, 0, 199) <= 0.005


def test_weight_that_falls_with_distance_is_found_and_chance_makes_none_as_often_as_it_says():
    random, distance = np.random.default_rng(0), np.arange(17)
    p = [falls(random.dirichlet(np.ones(17), 8), distance, seed, 199)[2] for seed in range(300)]
    assert 0.02 <= np.mean(np.array(p) <= 0.05) <= 0.09
    slope, straight, p = falls(np.exp(-0.3 * distance)[None].repeat(8, 0), distance, 0, 199)
    np.testing.assert_allclose([slope, straight, p], [0.3, 1.0, 1 / 200], rtol=1e-9)
    assert falls(np.exp(0.3 * distance)[None].repeat(8, 0), distance, 0, 199)[1:] == (pytest.approx(-1.0), 1.0)


def test_heads_of_alibi_look_the_less_the_farther():
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=50, width=32, heads=4, layers=1, scheme="alibi", max_length=64)).eval()
    finding = Offsets().measure(attach(model), texts(16, 48))
    found = {one.name: one for one in finding.estimates}
    # the steepest looks at itself; the flattest, 2^-8 a place, falls to nearly nothing less
    assert found["heads that look the less the farther"].value == 2
    slopes = {row[1]: row[6] for row in finding.tables[0].rows}
    np.testing.assert_allclose([slopes[head] for head in (2, 3, 4)], [2**-4, 2**-6, 2**-8], atol=2e-3)
    assert "2 the less the farther" in finding.answer


def test_heads_in_closed_form_are_what_they_say():
    facts = Plain("none").facts
    heads, targets = [(0, 0), (0, 1), (1, 0)], [Target(offset=2), Target(), Target(slope=0.5)]
    given = torch.full((1, 2, 9, 9), 0.1)
    first, second = Even(facts, heads, targets).weights(0, given)[0]
    assert first.diagonal(-2).tolist() == [1.0] * 7
    assert second[:, 0].tolist() == [1.0] * 9
    falling = Even(facts, heads, targets).weights(1, given)[0, 0]
    by_hand = torch.exp(-0.5 * (8 - torch.arange(9.0)))
    torch.testing.assert_close(falling[8], by_hand / by_hand.sum())
    assert (falling.triu(1) == 0).all()
    torch.testing.assert_close(Even(facts, heads).weights(1, given)[0, 0, 8], torch.full((9,), 1 / 9))


def test_a_model_without_positions_has_no_such_heads():
    for causal in (True, False):
        finding = Offsets().measure(Plain("none", causal=causal), texts(16, 32))
        assert finding.estimates[0].value == 0
        assert "None of 4 heads" in finding.answer


def test_images_are_asked_for_patches():
    torch.manual_seed(0)
    shape = VisionShape(vocabulary=3, width=32, heads=2, layers=2, image=(16, 16), patch=(4, 4), channels=1)
    finding = Offsets().measure(attach(Vision(shape).eval()), Material(None, torch.randn(6, 1, 16, 16), "noise"))
    assert finding.tables[0].rows


def test_short_texts_are_told():
    with pytest.raises(Unfit, match="12 places"):
        Offsets().measure(Plain(), texts(6, 10))


def test_the_same_seed_gives_the_same_finding():
    one, other = (Offsets().measure(planted(), texts(), 3).model_copy(update={"seconds": 0.0}) for _ in range(2))
    assert one == other
    assert one.model_validate_json(one.model_dump_json()) == one

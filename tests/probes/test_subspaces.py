import numpy as np
import pytest
import torch

from ordinate.measures.codes import read_out, saw, singled_out
from ordinate.measures.presenting import Passes, sample
from ordinate.measures.sharing import inside, of_tables, selectivity
from ordinate.measures.splitting import TERMS, Lacking, Terms, means_of, split
from ordinate.ops.overlap import by_chance, cosines, frame, overlap
from ordinate.ops.waves import sinusoids
from ordinate.probes.subspaces import Subspaces
from ordinate.subject import Attended, Inputs, Unfit, Watch
from ordinate.testing.plain import Plain, texts


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def frames(count, width, seed):
    return torch.linalg.qr(drawn(width, count, seed=seed)).Q.T


def test_frames_hold_what_they_say():
    x = drawn(200, 3) @ frames(3, 10, 1) * torch.tensor(5.0) + 0.01 * drawn(200, 10, seed=2)
    found = frame(x, 0.99)
    assert len(found) == 3
    torch.testing.assert_close(found @ found.T, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(
        cosines(found, frames(3, 10, 1)), torch.ones(3, dtype=torch.float64), atol=1e-3, rtol=0
    )
    eye = torch.eye(10, dtype=torch.float64)
    assert overlap(eye[:3], eye[3:8]) == 0
    np.testing.assert_allclose(overlap(eye[:3], eye[2:8]), 1 / 3)


@pytest.mark.parametrize(("less", "more", "width"), [(3, 8, 32), (20, 24, 48)])
def test_random_frames_overlap_as_chance_says(less, more, width):
    null = by_chance(torch.ones(less), more, width, 0)
    np.testing.assert_allclose(null.mean(), more / width, rtol=0.02)
    low, high = np.percentile(null, [2.5, 97.5])
    found = [overlap(frames(less, width, 2 * seed), frames(more, width, 2 * seed + 1)) for seed in range(200)]
    np.testing.assert_allclose(np.mean(found), more / width, rtol=0.05)
    # right angles between them make the true spread a little smaller
    assert np.mean([low <= one <= high for one in found]) >= 0.93


def stream(into, texts=24, places=20, width=32, tokens=12, seed=0):
    """Tokens in the first directions, and position in those directions that are named."""
    basis = frames(width, width, 99)
    own = drawn(texts, places, tokens, seed=seed) @ basis[:tokens]
    return own + drawn(places, len(into), seed=seed + 1) @ basis[into] + 5


def test_position_is_found_where_it_was_put():
    within = inside(stream([0, 1, 2]), 0.99, 0)
    beside = inside(stream([20, 21, 22]), 0.99, 0)
    assert within.share.mean() > 0.95
    assert abs(beside.share.mean()) < 0.05
    assert within.chance == beside.chance == 12 / 32
    assert inside(stream([]), 0.99, 0).share is None


def test_position_in_random_directions_is_at_chance_as_often_as_it_says():
    held = []
    for seed in range(60):
        x = drawn(24, 20, 12, seed=seed) @ frames(12, 32, 99) + drawn(20, 32, seed=seed + 500)
        found = inside(x, 0.99, seed)
        held.append(found.low <= found.share.mean() <= found.high)
    assert np.mean(held) >= 0.85


def test_two_tables_overlap_as_they_were_made():
    tokens = drawn(200, 8) @ frames(8, 32, 1)
    rows = of_tables(drawn(40, 4, seed=2) @ frames(8, 32, 1)[:4], tokens, 0)
    assert [row[:3] for row in rows][-1] == (0.99, 4, 8)
    np.testing.assert_allclose(rows[-1][3], 1)
    np.testing.assert_allclose(rows[-1][4], 8 / 32)
    np.testing.assert_allclose(rows[-1][7], 1)


def taken_apart(place_q, place_k, token_q, token_k, count=200):
    """Shares of a head whose queries and keys are these parts, in these strengths."""
    subject, n, d = Plain("none", causal=False, layers=1, heads=1), 16, 24
    places = [drawn(n, d, seed=seed) * size for seed, size in ((1, place_q), (2, place_k))]
    places = [own - own.mean(0) for own in places]

    q, k = (own + drawn(count, n, d, seed=30 + turn) * size
            for turn, (own, size) in enumerate(zip(places, (token_q, token_k), strict=True)))  # fmt: skip
    q, k = q[:, None], k[:, None]
    terms = Terms(subject.facts, 0.5)
    scores = 0.5 * q @ k.mT
    terms.attended(0, Attended(q, k, q, scores, scores, q))
    return terms.found[0][0][:, 0].mean(0).numpy()


@pytest.mark.parametrize("term", range(4))
def test_a_planted_term_is_the_one_that_is_found(term):
    sizes = {0: (0, 0, 1, 1), 1: (0, 1, 1, 0), 2: (1, 0, 0, 1), 3: (1, 1, 0, 0)}[term]
    found = taken_apart(*sizes)
    np.testing.assert_allclose(found, np.eye(5)[term], atol=0.06)
    np.testing.assert_allclose(taken_apart(1, 1, 1, 1), [0.25, 0.25, 0.25, 0.25, 0], atol=0.06)


def test_the_terms_sum_to_the_scores_exactly():
    subject = Plain("learned", causal=True, layers=2)
    chosen = sample(subject.facts, texts(12, 16), Passes(1))
    means, scale, found = means_of(subject, chosen), subject.weights[0].query.shape[-1] ** -0.5, []

    class First(Watch):
        def scores(self, layer, scores):
            if layer == 0:
                found.append(scores)

    class Without(Lacking):
        def scores(self, layer, scores):
            found.append(super().scores(layer, scores))
            return scores

    given = Inputs(chosen.ids)
    subject.read(given, First())
    plain, seen = found.pop(), torch.ones(16, 16).tril().bool()
    for term in range(len(TERMS)):
        subject.read(given, Without(means, term, scale))
    parts = sum(plain - without for without in found[::2])
    torch.testing.assert_close(parts[..., seen], plain[..., seen])
    shares = split(subject, chosen, scale)
    torch.testing.assert_close(shares.sum(-1), torch.ones_like(shares[..., 0]))


def test_what_a_scalar_and_sinusoids_allow():
    line = torch.linspace(0, 1, 40, dtype=torch.float64)[:, None] * drawn(1, 8)
    assert (singled_out(line) > 0).nonzero().flatten().tolist() == [0, 39]
    waves = sinusoids(torch.arange(64)[None, :, None], 32, theta=1e4, form="vaswani", odd="paper")[0]
    assert (singled_out(waves) > 0).all()
    assert read_out(line, 0).ramp.mean() > 0.999
    assert read_out(line, 0).saws[:, 0].mean() < 0.2
    own, random = read_out(waves, 0), read_out(drawn(64, 32, seed=3), 0)
    assert own.ramp.mean() > 0.99
    # the long waves are there, the jump of a sawtooth is not
    assert own.sines[:, -1].mean() > 0.99
    assert own.saws[:, -1].mean() < own.sines[:, -1].mean()
    assert own.saws.mean() > random.saws.mean()
    assert random.ramp.mean() < 0.1


def test_a_sawtooth_is_its_series():
    places, period = torch.arange(1.0, 8.0), 8
    series = sum(torch.sin(2 * torch.pi * n * places / period) / (torch.pi * n) for n in range(1, 4000))
    torch.testing.assert_close(saw(places, period), 0.5 - series, atol=1e-3, rtol=0)


def test_matrices_that_read_position_are_told_from_those_that_do_not():
    subject = Plain("learned", width=32)
    basis = frames(32, 32, 99)
    subject.weights[0].query[:] = basis[20:23].T @ drawn(3, 16)
    subject.weights[0].key[:] = basis[:12].T @ drawn(12, 16)
    found = selectivity(subject, stream([20, 21, 22]), 0.9, {})
    assert found["queries"] > 8
    assert found["keys"] < 0.3
    assert 0.3 < found["values"] < 2


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_planted_position_shows_in_the_scores():
    subject = Plain("learned", width=32, heads=2, scale=2.0)
    found = named(Subspaces().measure(subject, texts(30, 32)))
    assert found["share of the scores: position-position"].value > 0.4
    own = found["position in the directions of tokens, as it enters"]
    assert own.null_low < own.value < own.null_high
    assert found["places that a head can single out"].value == 1
    assert found["the same of a number from 0 to 1"].value == 2 / 32
    assert abs(sum(one.value for name, one in found.items() if name.startswith("share of the scores")) - 1) < 1e-9


def test_without_position_none_is_found_as_often_as_it_says():
    held = []
    for seed in range(20):
        subject = Plain("none", causal=False, layers=1, seed=seed)
        finding = Subspaces().measure(subject, texts(30, 12, seed=seed), seed)
        for term in TERMS[1:]:
            own = named(finding)[f"share of the scores: {term}"]
            held.append(own.low <= 0 <= own.high)
    assert np.mean(held) >= 0.85
    assert finding.answer.startswith("No position shows")


def test_too_few_texts_are_told():
    with pytest.raises(Unfit, match="needs 15"):
        Subspaces().measure(Plain(), texts(14, 12))


def test_the_same_seed_gives_the_same_finding():
    one, other = (
        Subspaces().measure(Plain("learned"), texts(15), 3).model_copy(update={"seconds": 0.0}) for _ in "ab"
    )
    assert one == other
    assert one.model_validate_json(one.model_dump_json()) == one

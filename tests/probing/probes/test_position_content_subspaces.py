import numpy as np
import pytest
import torch

from ordinate.core.finding import Estimate
from ordinate.ops.overlap import null_overlaps, principal_cosines, principal_subspace, subspace_overlap
from ordinate.ops.sinusoids import sinusoids
from ordinate.probing._adapter import AttentionRecord, Hooks, Inputs, NotApplicable
from ordinate.probing.measures.position_codes import hull_distances, linear_readouts, sawtooth
from ordinate.probing.measures.samples import ForwardBudget, subsample
from ordinate.probing.measures.score_decomposition import (
    TERMS,
    AblatedTerms,
    ScoreTerms,
    position_means,
    score_variance_shares,
)
from ordinate.probing.measures.subspace_overlap import (
    embedding_overlaps,
    position_selectivity,
    position_share_in_token_subspace,
)
from ordinate.probing.probes.position_content_subspaces import PositionContentSubspaces, _grade
from ordinate.testing.analytic_model import AnalyticModel, random_sequences


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def frames(count, width, seed):
    return torch.linalg.qr(drawn(width, count, seed=seed)).Q.T


def test_frames_hold_their_share_of_energy():
    x = drawn(200, 3) @ frames(3, 10, 1) * torch.tensor(5.0) + 0.01 * drawn(200, 10, seed=2)
    found = principal_subspace(x, 0.99)
    assert len(found) == 3
    torch.testing.assert_close(found @ found.T, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(
        principal_cosines(found, frames(3, 10, 1)), torch.ones(3, dtype=torch.float64), atol=1e-3, rtol=0
    )
    eye = torch.eye(10, dtype=torch.float64)
    assert subspace_overlap(eye[:3], eye[3:8]) == 0
    np.testing.assert_allclose(subspace_overlap(eye[:3], eye[2:8]), 1 / 3)


@pytest.mark.parametrize(("less", "more", "width"), [(3, 8, 32), (20, 24, 48)])
def test_overlap_of_random_frames_matches_the_null(less, more, width):
    null = null_overlaps(torch.ones(less), more, width, 0)
    np.testing.assert_allclose(null.mean(), more / width, rtol=0.02)
    low, high = np.percentile(null, [2.5, 97.5])
    found = [
        subspace_overlap(frames(less, width, 2 * seed), frames(more, width, 2 * seed + 1)) for seed in range(200)
    ]
    np.testing.assert_allclose(np.mean(found), more / width, rtol=0.05)
    # orthogonality makes the true spread slightly smaller
    assert np.mean([low <= one <= high for one in found]) >= 0.93


def stream(into, texts=24, places=20, width=32, tokens=12, seed=0):
    """Residual stream with tokens in the first dimensions and position in the given ones."""
    basis = frames(width, width, 99)
    own = drawn(texts, places, tokens, seed=seed) @ basis[:tokens]
    return own + drawn(places, len(into), seed=seed + 1) @ basis[into] + 5


def test_planted_position_subspace_is_recovered():
    within = position_share_in_token_subspace(stream([0, 1, 2]), 0.99, 0)
    beside = position_share_in_token_subspace(stream([20, 21, 22]), 0.99, 0)
    assert within.share.value > 0.95
    assert abs(beside.share.value) < 0.05
    assert within.chance == beside.chance == 12 / 32
    assert position_share_in_token_subspace(stream([]), 0.99, 0).share is None


def test_null_interval_of_position_share_is_calibrated():
    held = []
    for seed in range(60):
        x = drawn(24, 20, 12, seed=seed) @ frames(12, 32, 99) + drawn(20, 32, seed=seed + 500)
        found = position_share_in_token_subspace(x, 0.99, seed)
        held.append(found.low <= found.share.value <= found.high)
    assert np.mean(held) >= 0.85


def test_the_interval_of_a_position_share_is_as_wide_as_the_share_varies():
    basis, random = frames(32, 32, 99), drawn(16, 8, seed=7)
    # half of the position variance among the first 12 directions, half beside them
    places = random[:, :4] @ basis[:4] + random[:, 4:] @ basis[20:24]
    found = [
        position_share_in_token_subspace(drawn(24, 16, 12, seed=seed) @ basis[:12] + places, 0.99, seed).share
        for seed in range(60)
    ]
    spread, half = np.std([one.value for one in found]), np.mean([one.high - one.low for one in found]) / 2
    # intervals of texts alone, with the means of the others held fixed, were half as wide
    assert 0.75 <= half / (2.07 * spread) <= 1.4
    centred = places - places.mean(0)
    truth = float((centred @ basis[:12].T).square().sum() / centred.square().sum())
    assert np.mean([one.low <= truth <= one.high for one in found]) >= 0.85


def test_position_in_directions_of_its_own_is_not_in_the_way():
    subject = AnalyticModel("learned", width=32, heads=2, scale=1.0)
    basis = frames(32, 32, 99)
    subject.tokens[:] = subject.tokens @ basis[:12].T @ basis[:12]
    apart, shared = subject.table @ basis[20:24].T @ basis[20:24], subject.table @ basis[:4].T @ basis[:4]
    for table, grade in ((apart, "less than random directions do"), (shared, "more than random directions do")):
        subject.table[:] = table
        finding = PositionContentSubspaces().measure(subject, random_sequences(30, 24))
        assert f"At the input of the first layer position lies in the directions of tokens {grade}" in finding.answer
        assert finding.grade != ("yes" if table is apart else "no")


def test_ablating_noise_does_no_more_than_its_control():
    # the change of the output is never negative: only beside a control is it nothing
    subject = AnalyticModel("none", causal=False, head=False)
    found = named(PositionContentSubspaces().measure(subject, random_sequences(30, 16)))
    assert found["increase, token-position ablated"].low > 0
    assert found["increase, token-position ablated"].null is None
    excess = found["increase minus control, all terms with position ablated"]
    assert excess.low <= 0 <= excess.high
    placed = AnalyticModel("learned", head=False, scale=2.0)
    found = named(PositionContentSubspaces().measure(placed, random_sequences(30, 16)))
    assert found["increase minus control, all terms with position ablated"].low > 0.1


def test_overlap_of_planted_tables():
    tokens = drawn(200, 8) @ frames(8, 32, 1)
    rows = embedding_overlaps(drawn(40, 4, seed=2) @ frames(8, 32, 1)[:4], tokens, 0)
    assert [row[:3] for row in rows][-1] == (0.99, 4, 8)
    np.testing.assert_allclose(rows[-1][3], 1)
    np.testing.assert_allclose(rows[-1][4], 8 / 32)
    np.testing.assert_allclose(rows[-1][7], 1)


def taken_apart(place_q, place_k, token_q, token_k, count=200):
    """Variance shares of a head whose queries and keys are sums of these parts, with these scales."""
    subject, n, d = AnalyticModel("none", causal=False, layers=1, heads=1), 16, 24
    places = [drawn(n, d, seed=seed) * size for seed, size in ((1, place_q), (2, place_k))]
    places = [own - own.mean(0) for own in places]

    q, k = (own + drawn(count, n, d, seed=30 + turn) * size
            for turn, (own, size) in enumerate(zip(places, (token_q, token_k), strict=True)))  # fmt: skip
    q, k = q[:, None], k[:, None]
    terms = ScoreTerms(subject.info, [0.5])
    scores = 0.5 * q @ k.mT
    terms.attention(0, AttentionRecord(q, k, q, scores, scores, q))
    return terms.found[0][0][:, 0].mean(0).numpy()


@pytest.mark.parametrize("term", range(4))
def test_a_planted_term_is_detected(term):
    sizes = {0: (0, 0, 1, 1), 1: (0, 1, 1, 0), 2: (1, 0, 0, 1), 3: (1, 1, 0, 0)}[term]
    found = taken_apart(*sizes)
    np.testing.assert_allclose(found, np.eye(5)[term], atol=0.06)
    np.testing.assert_allclose(taken_apart(1, 1, 1, 1), [0.25, 0.25, 0.25, 0.25, 0], atol=0.06)


def test_the_terms_sum_to_the_scores_exactly():
    subject = AnalyticModel("learned", causal=True, layers=2)
    chosen = subsample(subject.info, random_sequences(12, 16), ForwardBudget(1))
    means, scale, found = position_means(subject, chosen), [subject.weights[0].query.shape[-1] ** -0.5] * 2, []

    class First(Hooks):
        def attention_scores(self, layer, scores):
            if layer == 0:
                found.append(scores)

    class Without(AblatedTerms):
        def attention_scores(self, layer, scores):
            found.append(super().attention_scores(layer, scores))
            return scores

    given = Inputs(chosen.ids)
    subject.forward(given, First())
    plain, seen = found.pop(), torch.ones(16, 16).tril().bool()
    for term in range(len(TERMS)):
        subject.forward(given, Without(means, (term,), scale))
    parts = sum(plain - without for without in found[::2])
    torch.testing.assert_close(parts[..., seen], plain[..., seen])
    shares = score_variance_shares(subject, chosen, scale)
    torch.testing.assert_close(shares.sum(-1), torch.ones_like(shares[..., 0]))


def test_separability_of_scalar_and_sinusoidal_positions():
    line = torch.linspace(0, 1, 40, dtype=torch.float64)[:, None] * drawn(1, 8)
    assert (hull_distances(line) > 0).nonzero().flatten().tolist() == [0, 39]
    waves = sinusoids(torch.arange(64)[None, :, None], 32, theta=1e4, form="vaswani", odd="paper")[0]
    assert (hull_distances(waves) > 0).all()
    assert linear_readouts(line, 0).ramp.mean() > 0.999
    assert linear_readouts(line, 0).saws[:, 0].mean() < 0.2
    own, random = linear_readouts(waves, 0), linear_readouts(drawn(64, 32, seed=3), 0)
    assert own.ramp.mean() > 0.99
    # long wavelengths are present, the jump of a sawtooth is not
    assert own.sines[:, -1].mean() > 0.99
    assert own.saws[:, -1].mean() < own.sines[:, -1].mean()
    assert own.saws.mean() > random.saws.mean()
    assert random.ramp.mean() < 0.1


def test_a_sawtooth_equals_its_fourier_series():
    places, period = torch.arange(1.0, 8.0), 8
    series = sum(torch.sin(2 * torch.pi * n * places / period) / (torch.pi * n) for n in range(1, 4000))
    torch.testing.assert_close(sawtooth(places, period), 0.5 - series, atol=1e-3, rtol=0)


def test_position_energy_of_projections():
    subject = AnalyticModel("learned", width=32)
    basis = frames(32, 32, 99)
    subject.weights[0].query[:] = basis[20:23].T @ drawn(3, 16)
    subject.weights[0].key[:] = basis[:12].T @ drawn(12, 16)
    found = position_selectivity(subject, stream([20, 21, 22]), 0.9)
    assert found["queries"] > 8
    assert found["keys"] < 0.3
    assert 0.3 < found["values"] < 2


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_planted_position_is_detected_in_the_scores():
    subject = AnalyticModel("learned", width=32, heads=2, scale=2.0)
    found = named(PositionContentSubspaces().measure(subject, random_sequences(30, 32)))
    assert found["share of score variance: position-position"].value > 0.4
    own = found["position variance in the token subspace, input"]
    assert own.null_low < own.value < own.null_high
    assert found["positions linearly separable from the others"].value == 1
    assert found["the same for a scalar position in [0, 1]"].value == 2 / 32
    assert abs(sum(one.value for name, one in found.items() if name.startswith("share of score variance")) - 1) < 1e-9


@pytest.mark.extended
def test_null_coverage_without_position():
    held = []
    for seed in range(20):
        subject = AnalyticModel("none", causal=False, layers=1, seed=seed)
        finding = PositionContentSubspaces().measure(subject, random_sequences(30, 12, seed=seed), seed)
        for term in TERMS[1:]:
            own = named(finding)[f"share of score variance: {term}"]
            held.append(own.low <= 0 <= own.high)
    assert np.mean(held) >= 0.85
    assert finding.grade == "no"
    assert finding.answer.startswith("At the input of the first layer no position information is detectable")


def test_too_few_texts_are_rejected():
    with pytest.raises(NotApplicable, match="needs 15 texts"):
        PositionContentSubspaces().measure(AnalyticModel(), random_sequences(14, 12))


def test_the_same_seed_gives_the_same_finding():
    one, other = (
        PositionContentSubspaces()
        .measure(AnalyticModel("learned"), random_sequences(15), 3)
        .model_copy(update={"seconds": 0.0})
        for _ in "ab"
    )
    assert one == other
    assert one.model_validate_json(one.model_dump_json()) == one


@pytest.mark.parametrize(
    ("at_input", "after", "grade", "rests_on"),
    [
        (0.01, 0.02, "no", 0),
        (0.6, 0.7, "yes", 0),
        (0.01, 0.7, "weakly", 1),
        (0.37, 0.7, "weakly", 1),
        (None, 0.01, "no", 1),
    ],
)
def test_the_grade_reads_the_input_and_the_last_layer(at_input, after, grade, rests_on):
    def placed(name, value):
        ends = {"low": value - 0.005, "high": value + 0.005, "null_low": 0.35, "null_high": 0.39}
        return Estimate(name=f"position variance in the token subspace, {name}", value=value, **ends)

    both = [None if at_input is None else placed("input", at_input), placed("final layer", after)]
    found = _grade([one for one in both if one is not None])
    assert found == (grade, both[rests_on])

import numpy as np
import pytest
import torch

from ordinate import Decoder, Shape, VisionShape, VisionTransformer
from ordinate.ops.linear_readout import nearest_mean_accuracy, ridge_r2, similarity_by_distance
from ordinate.ops.stats.variance_components import inner_products, position_share, variance_shares
from ordinate.probing._adapter import NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.probing.measures.linear_probes import linear_probes
from ordinate.probing.measures.residual_stream import (
    BranchScale,
    choose_positions,
    position_directions,
    residual_and_branch_ratios,
    residual_at_positions,
)
from ordinate.probing.measures.samples import ForwardBudget, subsample
from ordinate.probing.measures.subspace_ablation import excess_over_controls
from ordinate.probing.probes.position_retention import PositionRetention
from ordinate.testing.analytic_model import AnalyticModel, random_sequences


def drawn(texts, places, width, *, place=0.0, text=0.0, seed=0):
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    own = normal(texts, places, width)
    return own + place * normal(1, places, width) + text * normal(texts, 1, width) + 7


def test_variance_components_match_planted_ones():
    found = [
        variance_shares(inner_products(drawn(20, 30, 64, place=1.0, text=2**0.5, seed=seed))) for seed in range(20)
    ]
    np.testing.assert_allclose(np.mean(found, 0), [0.25, 0.5, 0.25], atol=0.01)
    # the plain formula of two-way analysis of variance
    x = drawn(5, 6, 3, place=1.0)
    mean = x.mean((0, 1))
    by_place, by_text = x.mean(0) - mean, x.mean(1) - mean
    rest = (x - mean - by_place - by_text[:, None]).square().sum() / 20
    place = (5 * by_place.square().sum() / 5 - rest) / 5
    text = (6 * by_text.square().sum() / 4 - rest) / 6
    expected = torch.stack([place, text, rest]) / (place + text + rest)
    np.testing.assert_allclose(variance_shares(inner_products(x)), expected, rtol=1e-9)


@pytest.mark.parametrize(("place", "share"), [(0.0, 0.0), (0.5, 0.1667)])
def test_the_interval_of_the_variance_share_covers_the_truth(place, share):
    means = 0.5 * drawn(1, 40, 6, seed=1000)
    means = place * (means - means.mean(1, keepdim=True)) / means.std() / (1 - 1 / 40) ** 0.5
    held = []
    for seed in range(200):
        found = position_share(drawn(16, 40, 6, text=0.5, seed=seed) + means)
        held.append(found.low <= share <= found.high)
    # an interval by jackknife pseudo-values covers 99.5 % without position, one over texts alone much less
    assert 0.9 <= np.mean(held) <= 0.985


def test_a_readout_is_never_tested_on_texts_that_it_was_fitted_to():
    x, targets = drawn(8, 12, 40), torch.arange(12.0).expand(8, -1)
    accuracy, r2 = nearest_mean_accuracy(x), ridge_r2(x, targets)
    assert accuracy.shape == r2.shape == (4,)
    changed = x.clone()
    changed[3] = drawn(1, 12, 40, seed=9)[0] * 100
    for before, after in ((accuracy, nearest_mean_accuracy(changed)), (r2, ridge_r2(changed, targets))):
        # the second tested text changes, and no other: no fit depends on it
        assert torch.equal(before[[0, 2, 3]], after[[0, 2, 3]])


def test_linear_readouts_match_planted_information():
    x = drawn(12, 10, 24)
    targets = torch.arange(10.0).expand(12, -1)
    assert nearest_mean_accuracy(x).mean() < 0.25
    assert ridge_r2(x, targets).mean() < 0.1
    x[..., 3] += 5 * targets
    assert nearest_mean_accuracy(x).mean() > 0.8
    assert ridge_r2(x, targets).mean() > 0.95
    # a norm that grows with position is not a linear function of the vector
    grown = drawn(40, 10, 24) - 7
    grown = grown * (1 + targets[0])[:, None]
    wide = targets[:1].expand(40, -1)
    assert ridge_r2(grown, wide).mean() < 0.1
    assert ridge_r2(grown, wide, squares=True).mean() > 0.6
    angles = torch.arange(4, dtype=torch.float64)
    line = torch.stack([angles.cos(), angles.sin()], 1).expand(2, -1, -1)
    np.testing.assert_allclose(similarity_by_distance(line, torch.arange(4.0)), 1.0)


@pytest.fixture(scope="module")
def gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=200, n_embd=128, n_layer=6, n_head=4, n_positions=64)
    return attach(transformers.GPT2LMHeadModel(config).eval())


# columns: input, after layers 1, 2, 3
@pytest.mark.covering(0)
@pytest.mark.parametrize(
    ("dose", "expected"),
    [
        (BranchScale(), (0.50, 0.49, 0.49, 0.48)),
        (BranchScale(10.0), (0.50, 0.41, 0.22, 0.16)),
        (BranchScale(skip=0.0), (0.50, 0.30, 0.12, 0.07)),
        (BranchScale(without_mask=True), (0.50, 0.50, 0.49, 0.49)),
        (BranchScale(skip=0.0, without_mask=True), (0.50, 0.00, 0.00, 0.00)),
    ],
)
def test_position_is_preserved_by_the_skip_connection(gpt2, dose, expected):
    chosen = subsample(gpt2.info, random_sequences(24, 64, 200), ForwardBudget(1))
    streams = residual_at_positions(gpt2, chosen, choose_positions(chosen, gpt2.info), dose)
    found = [position_share(x).value for x in streams[:4]]
    np.testing.assert_allclose(found, expected, atol=0.06)


def test_without_skip_only_attention_remains():
    subject, places = AnalyticModel("learned"), torch.arange(24)
    given = subsample(subject.info, random_sequences(), ForwardBudget(1)).truncated(3)
    plain, sums = (residual_at_positions(subject, given, places, BranchScale(skip=skip)) for skip in (1.0, 0.0))
    torch.testing.assert_close(sums[1], plain[1] - plain[0])


@pytest.mark.parametrize("blocks", ["peri", "res_post"])
def test_no_mixing_ratio_of_an_attention_output_that_is_normalised(blocks):
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=50, width=32, heads=4, layers=2, norm_position=blocks, max_length=64))
    subject = attach(model.eval())
    assert all(subject.projection(layer).output_norm for layer in range(2))
    chosen = subsample(subject.info, random_sequences(4, 16), ForwardBudget(1))
    found = residual_and_branch_ratios(subject, chosen, choose_positions(chosen, subject.info))
    assert list(found.value[1]) == ["norm of attention output / norm of residual"]
    assert "before it is added" in found.missing["mixing ratio"]


def test_no_mixing_ratio_of_an_attention_output_with_gates():
    torch.manual_seed(0)
    mixer = "softmax:variant.output_gate=true"
    model = Decoder(Shape(vocabulary=50, width=32, heads=4, layers=2, mixer=mixer, max_length=64)).eval()
    subject = attach(model)
    assert all(subject.projection(layer).output_gate for layer in range(2))
    chosen = subsample(subject.info, random_sequences(4, 16), ForwardBudget(1))
    found = residual_and_branch_ratios(subject, chosen, choose_positions(chosen, subject.info))
    assert list(found.value[1]) == ["norm of attention output / norm of residual"]
    assert "multiplies the outputs of its heads by gates" in found.missing["mixing ratio"]


def test_the_mixing_ratio_is_zero_under_self_attention_only():
    subject = AnalyticModel("learned")
    for own in subject.weights:
        own.query[:] = own.key * 1e3
        own.key[:] = own.key * 1e3
    chosen = subsample(subject.info, random_sequences(), ForwardBudget(1))
    streams, found = residual_and_branch_ratios(subject, chosen, choose_positions(chosen, subject.info)).value
    assert found["mixing ratio"].mean() < 0.1 < found["norm of attention output / norm of residual"].mean()
    for own, other in zip(
        streams, residual_at_positions(subject, chosen, choose_positions(chosen, subject.info)), strict=True
    ):
        torch.testing.assert_close(own, other)


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_planted_position_is_detected_and_its_ablation_has_an_effect():
    subject = AnalyticModel("learned", width=32)
    finding = PositionRetention().measure(subject, random_sequences(24, 32))
    found = named(finding)
    first = found["variance explained by position, input"]
    assert first.low < 0.53
    assert first.high > 0.5
    assert found["variance explained by position, final layer"].low > 0.3
    assert found["positions recovered by nearest mean, final layer"].low > 0.9
    severed = found["variance explained by position, final layer, no skip"].value
    assert severed < 0.6 * found["variance explained by position, final layer"].value
    assert abs(found["variance explained by position, final layer, no skip, no mask"].value) < 0.02
    assert "of the variance at the input" in finding.answer
    # controls predict nothing, or tokens only
    assert found["R^2 of a linear probe for position, final layer"].low > 0.3
    for end in ("input", "final layer"):
        assert found[f"R^2 of a linear probe for shuffled positions, {end}"].value < 0.05
        assert abs(found[f"positions recovered by nearest mean, shuffled positions, {end}"].value - 1 / 31) < 0.03
    titles = [chart.title for chart in finding.charts]
    assert "Linear probes on the residual stream" in titles
    assert "Position in the final layer by strength of attention" in titles


def test_outlier_dimensions_do_not_hide_position():
    places, x = torch.arange(24), drawn(12, 24, 32, place=1.0)
    chosen = subsample(AnalyticModel().info, random_sequences(12, 24), ForwardBudget(1))

    def found(stream):
        read = linear_probes([stream, stream], chosen, places, 0)
        return {estimate.name: estimate.value for estimate in read.estimates}

    plain = found(x)
    # dimensions without position information, with many times the variance of all others
    x[..., :3] = 1e3 * drawn(12, 24, 3, seed=5)
    hidden = found(x)
    assert position_share(x).value < 0.05
    assert hidden["variance in the 3 largest dimensions, final layer"] > 0.999
    kept = "variance explained by position without the 3 largest dimensions, final layer"
    assert abs(hidden[kept] - plain[kept]) < 0.05
    assert abs(plain[kept] - 0.5) < 0.1
    assert plain["variance in the 3 largest dimensions, final layer"] < 0.2


def test_position_directions_match_planted_ones():
    x = drawn(200, 12, 16)
    x[..., :2] += 9 * torch.randn(12, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = position_directions(x, 0.9, 8)
    assert len(found) == 2
    assert found[:, :2].square().sum() > 1.99


@pytest.mark.extended
def test_null_coverage_without_position():
    subject, held = AnalyticModel("none", causal=False, layers=1), []
    for seed in range(24):
        found = named(PositionRetention(doses=False).measure(subject, random_sequences(12, 12, seed=seed), seed))
        for name in ("input", "final layer"):
            own = found[f"variance explained by position, {name}"]
            held.append(own.low <= 0 <= own.high)
    assert 0.85 <= np.mean(held) <= 1.0


class Averaging(AnalyticModel):
    """Without position encoding, with attention that is even over the tokens before."""

    def __init__(self, **shape):
        super().__init__("none", layers=2, width=32, **shape)
        for own in self.weights:
            own.query.zero_()


@pytest.mark.extended
def test_position_from_the_causal_mask_alone_is_not_denied():
    # Haviv et al. 2022: position is decoded from the norms of averages, though it explains no variance
    finding = PositionRetention(doses=False).measure(Averaging(), random_sequences(48, 32))
    found = named(finding)
    assert abs(found["variance explained by position, final layer"].value) < 0.02
    assert found["R^2 of a linear probe with squares for position, final layer"].low > 0.1
    assert (finding.grade, finding.effect.name.startswith("variance")) == ("yes", False)
    assert finding.headline.startswith("Yes. ")
    assert "No position information" not in finding.headline


@pytest.mark.extended
def test_a_model_without_position_gets_no_yes():
    subject = AnalyticModel("none", causal=False, layers=1)
    grades = [
        PositionRetention(doses=False).measure(subject, random_sequences(24, 16, seed=seed), seed).grade
        for seed in range(8)
    ]
    assert not {"yes", "weakly"} & set(grades)


def test_images_are_decoded_by_rows_and_columns():
    torch.manual_seed(0)
    shape = VisionShape(vocabulary=3, width=32, heads=2, layers=2, image=(16, 16), patch=(4, 4), channels=1)
    subject = attach(VisionTransformer(shape).eval())
    finding = PositionRetention().measure(subject, ProbeData(None, torch.randn(12, 1, 16, 16), "noise"))
    found = named(finding)
    assert found["R^2 of a linear probe for row, input"].value is not None
    assert "the row and the column" in finding.method


def test_too_few_texts_are_rejected():
    with pytest.raises(NotApplicable, match="needs 4 texts"):
        PositionRetention().measure(AnalyticModel(), random_sequences(3, 12))


@pytest.mark.extended
def test_the_same_seed_gives_the_same_finding():
    one, other = (
        PositionRetention().measure(AnalyticModel("rope"), random_sequences(), 3).model_copy(update={"seconds": 0.0})
        for _ in range(2)
    )
    assert one == other
    assert one.model_validate_json(one.model_dump_json()) == one


@pytest.mark.extended
def test_ablating_random_directions_equals_the_control():
    held = []
    for seed in range(12):
        found = named(
            PositionRetention(doses=False).measure(
                AnalyticModel("none", causal=False), random_sequences(12, 16, seed=seed), seed
            )
        )
        for one in found.values():
            if one.name.startswith("increase minus control"):
                held.append(one.low <= 0 <= one.high)
    assert np.mean(held) >= 0.85


def test_the_interval_of_an_excess_counts_the_differences_between_controls():
    random = np.random.default_rng(0)
    for directions in (1.0, 0.0):
        held = []
        for _ in range(400):
            # the measured directions are one more draw of the controls, on the same texts
            rises = (
                directions * random.normal(size=(6, 1)) + random.normal(size=(1, 20)) + random.normal(size=(6, 20))
            )
            found = excess_over_controls("", rises[0], list(rises[1:]), "")
            held.append(found.low <= 0 <= found.high)
            assert found.null_high == -found.null_low > 0
        assert 0.91 <= np.mean(held) <= 0.98

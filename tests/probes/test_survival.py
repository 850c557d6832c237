import numpy as np
import pytest
import torch

from ordinate import Vision, VisionShape
from ordinate.attachment import attach
from ordinate.measures.presenting import Passes, sample
from ordinate.measures.readouts import readouts
from ordinate.measures.whereabouts import Dose, Weighted, directions, kept, kept_and_added, places_of
from ordinate.ops.readout import likeness, nearest_mean, ridge
from ordinate.ops.variance import place_share, products, shares
from ordinate.probe import Material
from ordinate.probes.survival import Survival
from ordinate.subject import Unfit
from ordinate.testing.plain import Plain, texts


def drawn(texts, places, width, *, place=0.0, text=0.0, seed=0):
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    own = normal(texts, places, width)
    return own + place * normal(1, places, width) + text * normal(texts, 1, width) + 7


def test_the_parts_of_a_variance_are_those_it_was_made_of():
    found = [shares(products(drawn(20, 30, 64, place=1.0, text=2**0.5, seed=seed))) for seed in range(20)]
    np.testing.assert_allclose(np.mean(found, 0), [0.25, 0.5, 0.25], atol=0.01)
    # the plain formula of two-way analysis of variance
    x = drawn(5, 6, 3, place=1.0)
    mean = x.mean((0, 1))
    by_place, by_text = x.mean(0) - mean, x.mean(1) - mean
    rest = (x - mean - by_place - by_text[:, None]).square().sum() / 20
    place = (5 * by_place.square().sum() / 5 - rest) / 5
    text = (6 * by_text.square().sum() / 4 - rest) / 6
    expected = torch.stack([place, text, rest]) / (place + text + rest)
    np.testing.assert_allclose(shares(products(x)), expected, rtol=1e-9)


def test_texts_that_know_no_place_seldom_seem_to():
    from ordinate.measures.telling import estimate_of

    held = []
    for seed in range(200):
        found = estimate_of("", place_share(drawn(12, 10, 6, text=0.5, seed=seed)).numpy(), seed, "")
        held.append(found.low <= 0 <= found.high)
    assert 0.9 <= np.mean(held) <= 0.99


def test_what_is_read_is_what_is_there():
    x = drawn(12, 10, 24)
    targets = torch.arange(10.0).expand(12, -1)
    assert nearest_mean(x).mean() < 0.25
    assert ridge(x, targets).mean() < 0.1
    x[..., 3] += 5 * targets
    assert nearest_mean(x).mean() > 0.8
    assert ridge(x, targets).mean() > 0.95
    # a size that grows with the place is no linear function of it
    grown = drawn(40, 10, 24) - 7
    grown = grown * (1 + targets[0])[:, None]
    wide = targets[:1].expand(40, -1)
    assert ridge(grown, wide).mean() < 0.1
    assert ridge(grown, wide, squares=True).mean() > 0.6
    angles = torch.arange(4, dtype=torch.float64)
    line = torch.stack([angles.cos(), angles.sin()], 1).expand(2, -1, -1)
    np.testing.assert_allclose(likeness(line, torch.arange(4.0)), 1.0)


@pytest.fixture(scope="module")
def gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=200, n_embd=128, n_layer=6, n_head=4, n_positions=64)
    return attach(transformers.GPT2LMHeadModel(config).eval())


# columns: as it enters, after layer 1, 2, 3
@pytest.mark.parametrize(
    ("dose", "expected"),
    [
        (Dose(), (0.50, 0.49, 0.49, 0.48)),
        (Dose(10.0), (0.50, 0.41, 0.22, 0.16)),
        (Dose(skip=0.0), (0.50, 0.30, 0.12, 0.07)),
        (Dose(blind=True), (0.50, 0.50, 0.49, 0.49)),
        (Dose(skip=0.0, blind=True), (0.50, 0.00, 0.00, 0.00)),
    ],
)
def test_position_survives_by_the_skip(gpt2, dose, expected):
    chosen = sample(gpt2.facts, texts(24, 64, 200), Passes(1))
    streams = kept(gpt2, chosen, places_of(chosen, gpt2.facts), dose)
    found = [float(place_share(x).mean()) for x in streams[:4]]
    np.testing.assert_allclose(found, expected, atol=0.06)


def test_a_severed_skip_is_the_attention_alone():
    subject, places = Plain("learned"), torch.arange(24)
    plain, sums = (Weighted(subject.facts, places, Dose(skip=skip)) for skip in (1.0, 0.0))
    given = sample(subject.facts, texts(), Passes(1)).given(slice(0, 3))
    subject.read(given, plain)
    subject.read(given, sums)
    enter, leave = plain.kept[0][0], plain.kept[1][0]
    torch.testing.assert_close(sums.kept[1][0], leave - enter)


def test_the_mixing_ratio_is_nought_where_each_token_attends_to_itself():
    subject = Plain("learned")
    for own in subject.weights:
        own.query[:] = own.key * 1e3
        own.key[:] = own.key * 1e3
    chosen = sample(subject.facts, texts(), Passes(1))
    streams, found = kept_and_added(subject, chosen, places_of(chosen, subject.facts), {})
    assert found["mixing ratio"].mean() < 0.1 < found["what attention adds, beside what it is added to"].mean()
    for own, other in zip(streams, kept(subject, chosen, places_of(chosen, subject.facts)), strict=True):
        torch.testing.assert_close(own, other)


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_planted_position_is_found_and_cutting_it_out_shows():
    subject = Plain("learned", width=32)
    finding = Survival().measure(subject, texts(24, 32))
    found = named(finding)
    first = found["share of position, as it enters"]
    assert first.low < 0.53
    assert first.high > 0.5
    assert found["share of position, in the end"].low > 0.3
    assert found["places told, in the end"].low > 0.9
    severed = found["share of position in the end, skip severed"].value
    assert severed < 0.6 * found["share of position, in the end"].value
    assert abs(found["share of position in the end, skip severed, no mask"].value) < 0.02
    assert "of the variance as it enters" in finding.answer
    # controls tell nothing, or tokens alone
    assert found["R^2 of the place read linearly, in the end"].low > 0.3
    for end in ("as it enters", "in the end"):
        assert found[f"R^2 of the places exchanged read linearly, {end}"].value < 0.05
        assert abs(found[f"places told, places exchanged, {end}"].value - 1 / 31) < 0.03
    titles = [chart.title for chart in finding.charts]
    assert "What is read from the stream linearly" in titles
    assert "What is left in the end, by how much attention adds" in titles


def test_a_few_enormous_columns_do_not_hide_position():
    places, x = torch.arange(24), drawn(12, 24, 32, place=1.0)
    chosen = sample(Plain().facts, texts(12, 24), Passes(1))

    def found(stream):
        estimates, _ = readouts([stream, stream], chosen, places, 0)
        return {estimate.name: estimate.value for estimate in estimates}

    plain = found(x)
    # columns that know no place, and are as large as all others together many times over
    x[..., :3] = 1e3 * drawn(12, 24, 3, seed=5)
    hidden = found(x)
    assert place_share(x).mean() < 0.05
    assert hidden["variance in the 3 largest columns, in the end"] > 0.999
    kept = "share of position without the 3 largest columns, in the end"
    assert abs(hidden[kept] - plain[kept]) < 0.05
    assert abs(plain[kept] - 0.5) < 0.1
    assert plain["variance in the 3 largest columns, in the end"] < 0.2


def test_directions_of_position_are_those_it_was_put_into():
    x = drawn(200, 12, 16)
    x[..., :2] += 9 * torch.randn(12, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = directions(x, 0.9, 8)
    assert len(found) == 2
    assert found[:, :2].square().sum() > 1.99


def test_without_position_nothing_is_found_as_often_as_it_says():
    subject, held = Plain("none", causal=False, layers=1), []
    for seed in range(24):
        found = named(Survival(doses=False).measure(subject, texts(12, 12, seed=seed), seed))
        for name in ("as it enters", "in the end"):
            own = found[f"share of position, {name}"]
            held.append(own.low <= 0 <= own.high)
    assert 0.85 <= np.mean(held) <= 1.0
    assert "No position is left" in Survival(doses=False).measure(subject, texts(12, 12, seed=3), 3).answer


def test_images_are_asked_for_rows_and_columns():
    torch.manual_seed(0)
    shape = VisionShape(vocabulary=3, width=32, heads=2, layers=2, image=(16, 16), patch=(4, 4), channels=1)
    subject = attach(Vision(shape).eval())
    finding = Survival().measure(subject, Material(None, torch.randn(12, 1, 16, 16), "noise"))
    found = named(finding)
    assert found["R^2 of the row read linearly, as it enters"].value is not None
    assert "the row and the column" in finding.method


def test_too_few_texts_are_told():
    with pytest.raises(Unfit, match="needs 4"):
        Survival().measure(Plain(), texts(3, 12))


def test_the_same_seed_gives_the_same_finding():
    one, other = (Survival().measure(Plain("rope"), texts(), 3).model_copy(update={"seconds": 0.0}) for _ in range(2))
    assert one == other
    assert one.model_validate_json(one.model_dump_json()) == one


def test_cutting_out_what_is_no_position_costs_no_more_than_its_control():
    held = []
    for seed in range(12):
        found = named(Survival(doses=False).measure(Plain("none", causal=False), texts(12, 16, seed=seed), seed))
        for one in found.values():
            if one.name.startswith("rise beyond"):
                # two times what three controls are apart from each other
                held.append(2 * one.null_low <= one.value <= 2 * one.null_high)
    assert np.mean(held) >= 0.8

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ordinate import Decoder, Shape
from ordinate.probing._attach import attach
from ordinate.probing.measures.samples import (
    ForwardBudget,
    Sample,
    intervention_sample,
    observation_sample,
    permuted_mask,
    random_permutation,
    subsample,
    unpermuted,
)
from ordinate.probing.measures.synthetic_patterns import ReplacePattern
from ordinate.probing.probes.order_sensitivity import OrderSensitivity
from ordinate.probing.probes.position_retention import PositionRetention
from ordinate.testing.analytic_model import AnalyticModel, random_sequences


def test_patches_are_permuted_and_class_tokens_are_not():
    images = torch.arange(2.0)[:, None, None, None] * 100 + torch.arange(16.0).reshape(1, 1, 4, 4)
    held = Sample(None, images, 0, (2, 2), prefix=1)
    order = torch.tensor([[3, 0, 1, 2]] * 2)
    given = held.inputs(slice(0, 2), order, positions=True)
    want = torch.tensor([[10, 11, 0, 1], [14, 15, 4, 5], [2, 3, 8, 9], [6, 7, 12, 13]]) + 100
    assert torch.equal(given.images[1, 0], want.float())
    assert given.positions.tolist() == [[0, 4, 1, 2, 3]] * 2


def test_shuffling_within_windows_is_invertible():
    held = Sample(random_sequences(5, 11).ids, None, 1, None)
    order = random_permutation(held, 4, torch.Generator().manual_seed(0))
    assert (order[:, 0] == 0).all()
    for start in (1, 5, 9):
        assert order[:, start : start + 4].sort(1).values.tolist() == [list(range(start, min(11, start + 4)))] * 5
    x = torch.randn(5, 11, 3)
    moved = x.gather(1, order[..., None].expand_as(x))
    torch.testing.assert_close(unpermuted(moved, order), x)


def test_permuted_causal_mask():
    order = torch.tensor([[2, 0, 1]])
    assert permuted_mask(AnalyticModel().info, order)[0].tolist() == [
        [True, True, True],
        [False, True, False],
        [False, True, True],
    ]
    assert permuted_mask(AnalyticModel(causal=False).info, order) is None


def test_a_large_model_gets_a_subsample_and_a_caveat():
    facts, material = AnalyticModel().info, random_sequences(64, 200)
    whole = subsample(facts, material, ForwardBudget(1))
    assert (whole.count, whole.length, whole.subsampling_notes) == (64, 200, ())
    for budget, size in ((4e8, (50, 200)), (1e8, (16, 173)), (1e7, (7, 64)), (1.0, (4, 64))):
        less = subsample(facts, replace(material, budget=budget), ForwardBudget(1))
        assert (less.count, less.length) == size
        assert torch.equal(less.ids, material.ids[: less.count, : less.length])
        assert f"Of 64 texts of 200 it uses {size[0]} of {size[1]}:" in less.subsampling_notes[0]


@pytest.mark.covering(0)
@pytest.mark.parametrize("budget", [1.5e8, 4e8, 1e9])
def test_reading_a_sample_costs_its_budget(budget):
    model = Decoder(Shape(vocabulary=300, width=32, heads=2, layers=3, scheme="learned", max_length=128)).eval()
    subject, passes = attach(model), 3
    less = subsample(subject.info, replace(random_sequences(64, 128, 300), budget=budget), ForwardBudget(passes))
    assert (less.count, less.length) < (64, 128)
    with FlopCounterMode(display=False) as counted:
        for _ in range(passes):
            for rows in less.batches(subject.info):
                # the plain formula, with operations counted
                subject.forward(less.inputs(rows), ReplacePattern(subject.info, []))
    assert 0.8 * budget < counted.get_total_flops() < 1.1 * budget


def test_a_subsample_is_reported_repeatable_and_less_certain():
    asked, material = OrderSensitivity(windows=(32,)), random_sequences(64, 64)
    whole = asked.measure(AnalyticModel(), material)
    less, again = (asked.measure(AnalyticModel(), replace(material, budget=4.8e8), seed=3) for _ in range(2))
    assert not any("budget" in caveat for caveat in whole.caveats)
    assert less.caveats[0].startswith("Of 64 texts of 64 passes under intervention use 16 of 64: ")
    assert "(16 of 64 tokens)" in less.method
    assert less.estimates == again.estimates
    sure, unsure = (
        next(one for one in found.estimates if one.name == "increase, shuffled completely") for found in (whole, less)
    )
    assert unsure.high - unsure.low > 1.3 * (sure.high - sure.low)


def test_observation_samples_use_the_whole_budget():
    facts, material = AnalyticModel().info, replace(random_sequences(64, 200), budget=7.5e8)
    looked, few = (
        observation_sample(facts, material, ForwardBudget(without_logits=1)),
        intervention_sample(facts, material, ForwardBudget(with_logits=9, without_logits=8)),
    )
    assert (looked.description, looked.subsampling_notes) == ("64 texts of 200 tokens", ())
    assert few.count == 16
    assert 64 <= few.length < 100
    assert few.subsampling_notes[0].startswith(
        f"Of 64 texts of 200 passes under intervention use 16 of {few.length}: "
    )


@pytest.mark.extended
def test_observations_use_all_texts_and_interventions_fewer():
    material = random_sequences(64, 64)
    whole, less = (PositionRetention(doses=False).measure(AnalyticModel("learned"), replace(material, budget=budget))
                   for budget in (1e12, 1.7e8))  # fmt: skip
    one, other = ({estimate.name: estimate for estimate in found.estimates} for found in (whole, less))
    for name in (
        "variance explained by position, final layer",
        "positions recovered by nearest mean, input",
        "mixing ratio, mean of layers",
    ):
        assert one[name].model_dump() == pytest.approx(other[name].model_dump())
    name = "the same with shuffled tokens, final layer"
    assert one[name].high - one[name].low < other[name].high - other[name].low
    assert "64 texts of 64 tokens, 63 positions" in less.method
    assert less.caveats[2].startswith("Of 64 texts of 64 passes under intervention use ")

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ordinate import Decoder, Shape
from ordinate.attachment import attach
from ordinate.measures.gaze import Even
from ordinate.measures.presenting import Passes, Sample, carried, changed, looked_at, sample, shuffled, undone
from ordinate.probes.order import Order
from ordinate.probes.survival import Survival
from ordinate.testing.plain import Plain, texts


def test_patches_change_places_and_class_tokens_do_not():
    images = torch.arange(2.0)[:, None, None, None] * 100 + torch.arange(16.0).reshape(1, 1, 4, 4)
    held = Sample(None, images, 0, (2, 2), prefix=1)
    order = torch.tensor([[3, 0, 1, 2]] * 2)
    given = held.given(slice(0, 2), order, positions=True)
    want = torch.tensor([[10, 11, 0, 1], [14, 15, 4, 5], [2, 3, 8, 9], [6, 7, 12, 13]]) + 100
    assert torch.equal(given.images[1, 0], want.float())
    assert given.positions.tolist() == [[0, 4, 1, 2, 3]] * 2


def test_tokens_are_shuffled_inside_their_windows_and_put_back():
    held = Sample(texts(5, 11).ids, None, 1, None)
    order = shuffled(held, 4, torch.Generator().manual_seed(0))
    assert (order[:, 0] == 0).all()
    for start in (1, 5, 9):
        assert order[:, start : start + 4].sort(1).values.tolist() == [list(range(start, min(11, start + 4)))] * 5
    x = torch.randn(5, 11, 3)
    moved = x.gather(1, order[..., None].expand_as(x))
    torch.testing.assert_close(undone(moved, order), x)


def test_each_token_takes_along_what_it_saw():
    order = torch.tensor([[2, 0, 1]])
    assert carried(Plain().facts, order)[0].tolist() == [
        [True, True, True],
        [False, True, False],
        [False, True, True],
    ]
    assert carried(Plain(causal=False).facts, order) is None


def test_a_costly_model_reads_less_of_the_same_and_says_so():
    facts, material = Plain().facts, texts(64, 200)
    whole = sample(facts, material, Passes(1))
    assert (whole.texts, whole.length, whole.left_out) == (64, 200, ())
    for budget, size in ((4e8, (50, 200)), (1e8, (16, 173)), (1e7, (7, 64)), (1.0, (4, 64))):
        less = sample(facts, replace(material, budget=budget), Passes(1))
        assert (less.texts, less.length) == size
        assert torch.equal(less.ids, material.ids[: less.texts, : less.length])
        assert f"Of 64 texts of 200 it reads {size[0]} of {size[1]}:" in less.left_out[0]


@pytest.mark.parametrize("budget", [1.5e8, 4e8, 1e9])
def test_reading_a_sample_costs_its_budget(budget):
    model = Decoder(Shape(vocabulary=300, width=32, heads=2, layers=3, scheme="learned", max_length=128)).eval()
    subject, passes = attach(model), 3
    less = sample(subject.facts, replace(texts(64, 128, 300), budget=budget), Passes(passes))
    assert (less.texts, less.length) < (64, 128)
    with FlopCounterMode(display=False) as counted:
        for _ in range(passes):
            for rows in less.parts(subject.facts):
                # the plain formula, in operations that are counted
                subject.read(less.given(rows), Even(subject.facts, []))
    assert 0.8 * budget < counted.get_total_flops() < 1.1 * budget


def test_less_reading_is_told_repeated_and_less_sure():
    asked, material = Order(windows=(32,)), texts(64, 64)
    whole = asked.measure(Plain(), material)
    less, again = (asked.measure(Plain(), replace(material, budget=4.8e8), seed=3) for _ in range(2))
    assert not any("is read in" in caveat for caveat in whole.caveats)
    assert less.caveats[0].startswith("Of 64 texts of 64 what is changed is read in 16 of 64: ")
    assert "(16 of 64 tokens)" in less.method
    assert less.estimates == again.estimates
    sure, unsure = (
        next(one for one in found.estimates if one.name == "rise shuffled whole") for found in (whole, less)
    )
    assert unsure.high - unsure.low > 1.3 * (sure.high - sure.low)


def test_what_is_only_looked_at_is_read_as_far_as_one_pass_pays():
    facts, material = Plain().facts, replace(texts(64, 200), budget=7.5e8)
    looked, few = (
        looked_at(facts, material, Passes(headless=1)),
        changed(facts, material, Passes(whole=9, headless=8)),
    )
    assert (looked.size, looked.left_out) == ("64 texts of 200 tokens", ())
    assert few.texts == 16
    assert 64 <= few.length < 100
    assert few.left_out[0].startswith(f"Of 64 texts of 200 what is changed is read in 16 of {few.length}: ")


def test_numbers_that_are_looked_at_are_of_all_texts_and_changes_of_few():
    material = texts(64, 64)
    whole, less = (Survival(doses=False).measure(Plain("learned"), replace(material, budget=budget))
                   for budget in (1e12, 1.7e8))  # fmt: skip
    one, other = ({estimate.name: estimate for estimate in found.estimates} for found in (whole, less))
    for name in ("share of position, in the end", "places told, as it enters", "mixing ratio, mean of layers"):
        assert one[name].model_dump() == pytest.approx(other[name].model_dump())
    name = "the same of shuffled tokens, in the end"
    assert one[name].high - one[name].low < other[name].high - other[name].low
    assert "64 texts of 64 tokens, 63 places" in less.method
    assert less.caveats[2].startswith("Of 64 texts of 64 what is changed is read in ")

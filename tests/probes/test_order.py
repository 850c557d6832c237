import numpy as np
import pytest
import torch

from ordinate.measures.equivariance import arms, prefix_swaps
from ordinate.measures.presenting import Passes, sample
from ordinate.probes.order import Order
from ordinate.testing.plain import Plain, texts


def chosen(subject, **sizes):
    return sample(subject.facts, texts(**sizes), Passes(1))


@pytest.mark.parametrize("position", ["none", "learned", "rope"])
def test_an_encoder_gives_the_same_when_positions_go_with_tokens(position):
    subject = Plain(position, causal=False)
    errors, _ = arms(subject, chosen(subject), 0)
    assert errors["tokens and positions"].max() < 1e-13
    assert (errors["tokens alone"].max() < 1e-13) == (position == "none")
    assert (errors["positions alone"].max() < 1e-13) == (position == "none")


@pytest.mark.parametrize("position", ["none", "learned", "rope"])
def test_a_decoder_gives_the_same_when_its_mask_goes_with_tokens(position):
    subject = Plain(position)
    errors, _ = arms(subject, chosen(subject), 0)
    assert errors["tokens, positions and mask"].max() < 1e-13
    assert errors["tokens and positions"].min() > 0.05


@pytest.mark.parametrize("position", ["none", "learned", "rope"])
def test_what_stands_before_is_a_set_at_depth_one_and_not_at_depth_two(position):
    subject = Plain(position, layers=3)
    change = prefix_swaps(subject, chosen(subject), 0, positions=True)
    assert change[:, 0].max() < 1e-14
    assert change[:, 1:].min() > 1e-3
    bidirectional = Plain(position, layers=3, causal=False)
    assert prefix_swaps(bidirectional, chosen(bidirectional), 0, positions=True).max() < 1e-13


def test_without_positions_swapped_tokens_are_seen_at_depth_one():
    subject = Plain("rope")
    assert prefix_swaps(subject, chosen(subject), 0, positions=False)[:, 0].min() > 1e-3


def named(finding):
    return {estimate.name: estimate for estimate in finding.estimates}


def test_an_order_blind_model_is_called_one():
    finding = Order().measure(Plain("none", causal=False), texts())
    assert "takes no notice of order" in finding.answer
    assert abs(named(finding)["rise shuffled whole"].value) < 1e-12


class Counting(Plain):
    """Predicts that each token is followed by the next number, as it always is in the texts below."""

    def read(self, inputs, watch=None):
        found = super().read(inputs, watch)
        logits = 4.0 * torch.nn.functional.one_hot((inputs.ids + 1) % 50, 50).double()
        return type(found)(found.stream, logits)


def counted(count=12, length=32):
    material = texts(count, length)
    ids = (torch.arange(length) + torch.arange(count)[:, None]) % 50
    return type(material)(ids, None, "numbers")


def test_a_planted_use_of_order_is_found():
    found = named(Order().measure(Counting(), counted()))["rise shuffled whole"]
    # a shuffled text seldom goes on with the next number: about 4 (1 - 2 / 32)
    assert 3.3 < found.value < 4.0
    assert found.low > 3.0 > found.null_high
    assert named(Order().measure(Counting(), counted()))["rise shuffled in pairs"].value < found.value


def test_without_order_to_lose_the_interval_holds_nought_as_often_as_it_says():
    # random tokens are exchangeable: a model of random numbers can lose nothing when they are shuffled
    subject, held = Plain("learned", layers=1), []
    for seed in range(60):
        found = named(Order(windows=(2,)).measure(subject, texts(10, 12, seed=seed), seed))
        held += [one.low <= 0 <= one.high for one in (found["rise shuffled whole"], found["rise shuffled in pairs"])]
    assert 0.87 <= np.mean(held) <= 0.995


def test_code_and_mask_share_what_they_are_worth():
    found = named(Order().measure(Plain("none", scale=2.0), counted()))
    # there is no code: whatever order is worth comes by the mask
    assert found["rise without position code"].value == 0
    share = found.get("share of the position code")
    assert share is None or share.value == 0


def test_the_same_seed_gives_the_same_finding():
    one, other = (Order().measure(Plain("rope"), texts(), 3).model_copy(update={"seconds": 0.0}) for _ in range(2))
    assert one == other
    assert one.model_validate_json(one.model_dump_json()) == one


def test_a_model_without_a_head_is_measured_by_its_output():
    finding = Order().measure(Plain("rope", head=False), texts())
    assert "change of the output" in finding.method
    assert named(finding)["rise shuffled whole"].low > 0


def test_positions_that_cannot_be_given_are_told():
    class Fixed(Plain):
        def read(self, inputs, watch=None):
            from ordinate.subject import Unfit

            if inputs.positions is not None:
                raise Unfit("its positions cannot be given")
            return super().read(inputs, watch)

    finding = Order().measure(Fixed("rope"), texts())
    assert any("its positions cannot be given" in caveat for caveat in finding.caveats)
    assert "change, tokens alone permuted" in named(finding)

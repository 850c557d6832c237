import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.addition import Addition


def number(digits, backwards):
    written = digits[::-1] if backwards else digits
    return int("".join(map(str, written)))


@pytest.mark.parametrize("backwards", [True, False])
@pytest.mark.parametrize("digits", [1, 3, 8])
def test_the_answer_is_the_sum(digits, backwards):
    batch = Addition(digits=digits, backwards=backwards).sample(torch.Generator().manual_seed(0), 100)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        plus, equals = inputs.index(10), inputs.index(11)
        assert (plus, equals) == (digits, 2 * digits + 1)
        one, other, said = inputs[:plus], inputs[plus + 1 : equals], inputs[equals + 1 :]
        answer = [target for target in targets if target != IGNORE_INDEX]
        assert targets[:equals] == [IGNORE_INDEX] * equals
        assert said == answer[:-1]
        assert number(one, backwards) + number(other, backwards) == number(answer, backwards)


def test_carry_chains_are_counted_from_their_origin():
    # 0 9 9 5 + 0 0 0 5: the ones carry, through two nines, into the thousands
    task = Addition(digits=4)
    for seed in range(200):
        batch = task.sample(torch.Generator().manual_seed(seed), 50)
        for inputs, carry in zip(batch.inputs.tolist(), batch.slices["carry"].tolist(), strict=True):
            one, other, chain, found = inputs[:4], inputs[5:9], 0, [0]
            for a, b in zip(one, other, strict=True):
                chain = chain + 1 if a + b + (chain > 0) > 9 else 0
                found.append(chain)
            assert carry[9:] == found
        if (batch.slices["carry"] == 4).any():
            return
    raise AssertionError("no carry went through all digits")


def test_places_are_counted_from_the_ones():
    front = Addition(digits=2, backwards=False).sample(torch.Generator(), 1)
    assert front.slices["place"][front.targets != IGNORE_INDEX].tolist() == [2, 1, 0]


def test_numbers_without_digits_are_refused():
    with pytest.raises(ValueError, match="numbers need digits; got digits=0"):
        Addition(digits=0)

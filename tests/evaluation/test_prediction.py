import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.evaluation.prediction import has_target, is_correct


class Says(torch.nn.Module):
    """Always says the token after the one it reads."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, ids):
        assert not self.training
        return torch.nn.functional.one_hot((ids + 1) % 10, 10).float() + self.weight


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_right_is_where_the_likeliest_token_is_the_answer(precision):
    inputs = torch.tensor([[1, 2, 3], [4, 5, 9]])
    targets = torch.tensor([[2, 4, IGNORE_INDEX], [IGNORE_INDEX, 6, 0]])
    model = Says().train()
    right = is_correct(model, Batch(inputs, targets), precision)
    assert right.tolist() == [[True, False, False], [False, True, True]]
    assert has_target(Batch(inputs, targets)).tolist() == [[True, True, False], [False, True, True]]
    assert model.training


def test_many_sequences_are_read_in_parts():
    inputs = torch.randint(10, (70, 1000))
    batch = Batch(inputs, (inputs + 1) % 10)
    assert is_correct(Says(), batch, "fp32").all()

import q_k_v
import torch
from generated_parts import stale


def test_the_page_has_the_numbers_of_the_library():
    assert not stale(q_k_v.pages())


def test_the_row_shown_is_softmax_of_the_scaled_products():
    q, k, v = torch.tensor([1.0, 2]), torch.tensor([[1.0, 1], [0, 1]]), torch.tensor([[1.0, 0], [0, 1]])
    _, _, first, second, total = q_k_v.row(q.double(), k.double(), v.double(), ("a", "b")).splitlines()
    # softmax of 3 / sqrt(2) and 2 / sqrt(2)
    assert first == "| key a | 1 | 2 | 3 | 2.121 | 0.670 | 0.670 | 0 |"
    assert second == "| key b | 0 | 2 | 2 | 1.414 | 0.330 | 0 | 0.330 |"
    assert total == "| **sum** |  |  |  |  | 1 | 0.670 | 0.330 |"

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes import NoPosition


def _tensors(*shape):
    return [
        torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) for seed in range(3)
    ]


def test_it_uses_no_hook_and_has_no_parameters():
    scheme = NoPosition()
    assert scheme.hooks == ()
    assert list(scheme.parameters()) == []


def test_it_gives_back_the_very_tensors():
    x = torch.randn(2, 3, 8)
    q, k, _ = _tensors(1, 2, 3, 4)
    at = NoPosition().at(Geometry.causal(3))
    assert at.embed(x) is x
    assert at.encode(q, k).pair == (q, k)
    assert at.bias is None


def test_without_a_causal_mask_attention_treats_its_input_as_a_set():
    q, k, v = _tensors(1, 2, 6, 4)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    at = NoPosition().at(Geometry.full(6))
    out = attend(q, k, v, at)
    again = attend(q, k[:, :, order], v[:, :, order], at)
    assert torch.allclose(out, again, rtol=0, atol=1e-14)


def test_with_a_causal_mask_the_order_of_earlier_tokens_means_nothing_to_one_layer():
    q, k, v = _tensors(1, 2, 6, 4)
    order = torch.tensor([1, 0, 2, 3, 4, 5])
    at = NoPosition().at(Geometry.causal(6))
    out, again = attend(q, k, v, at), attend(q, k[:, :, order], v[:, :, order], at)
    assert torch.allclose(out[:, :, 2:], again[:, :, 2:], rtol=0, atol=1e-14)
    assert not torch.allclose(out[:, :, :1], again[:, :, :1], rtol=0, atol=1e-3)


def test_it_takes_text_images_and_films():
    for axes in (1, 2, 3):
        NoPosition().at(Geometry.from_positions(torch.zeros(1, 4, axes)))
    with pytest.raises(ValueError, match="NoPosition takes positions with 1 or 2 or 3 axis; got 4 axes"):
        NoPosition().at(Geometry.from_positions(torch.zeros(1, 4, 4)))

import pytest
import torch

from ordinate.ops.native import build
from ordinate.ops.native.transpose import transposed_copy


@pytest.fixture(autouse=True)
def _built(monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    reason = build.unavailable_reason("transpose")
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (7, 9), (17, 3), (3, 17), (600, 40), (1029, 13), (64, 515)])
def test_it_is_the_transpose(shape, threads):
    x = torch.randn(shape)
    try:
        torch.set_num_threads(threads)
        made = transposed_copy(x)
    finally:
        torch.set_num_threads(1)
    assert made.is_contiguous()
    assert torch.equal(made, x.t())


def test_bits_are_kept():
    x = torch.tensor([[float("nan"), -0.0], [float("-inf"), 1e-45]] * 8)
    assert torch.equal(transposed_copy(x).view(torch.int32), x.t().contiguous().view(torch.int32))

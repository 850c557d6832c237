import pytest
import torch

from ordinate.ops.matmul import matmul, onednn_is_faster


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (2, 63, 5)])
@pytest.mark.parametrize("columns", [1, 9])
@pytest.mark.parametrize("type", [torch.float32, torch.float64])
def test_products_and_their_gradients_are_those_of_pytorch(shape, columns, type):
    x = torch.randn(*shape, dtype=type, requires_grad=True)
    weight = torch.randn(shape[-1], columns, dtype=type, requires_grad=True)
    slope = torch.randn(*shape[:-1], columns, dtype=type)
    found, exact = matmul(x, weight), x @ weight
    torch.testing.assert_close(found, exact)
    pairs = (torch.autograd.grad(y, (x, weight), slope) for y in (found, exact))
    for one, two in zip(*pairs, strict=True):
        torch.testing.assert_close(one, two)


def test_precision_is_kept_under_autocast():
    x, weight = torch.randn(4, 6).bfloat16(), torch.randn(6, 2, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = matmul(x, weight)
    torch.testing.assert_close(y, x.float() @ weight)
    y.sum().backward()
    torch.testing.assert_close(weight.grad, x.float().sum(0)[:, None].expand(-1, 2))


@pytest.mark.parametrize(("name", "expected"), [("AMD EPYC", True), ("Intel Xeon", False), ("", False)])
def test_the_library_is_chosen_by_the_processor(name, expected, monkeypatch):
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this build of PyTorch has no oneDNN")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name})
    # without its cache
    assert onednn_is_faster.__wrapped__() == expected

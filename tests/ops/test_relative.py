"""Rows of tables of relative vectors."""

import pytest
import torch

from ordinate import Geometry
from ordinate.ops.relative import chosen_rows, gather_products, scatter_weighted_sum
from ordinate.schemes import Deberta, Music, Shaw
from tests.attention.test_workspace import held

# the first forward derivative of a process compiles a formula of PyTorch
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
ROWS = torch.tensor([0, 0, 4, 2, 2, 2])


def table():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 5, 3, dtype=torch.float64, generator=generator).requires_grad_()


def test_chosen_rows_and_their_derivatives_are_those_of_an_index():
    x = table()
    assert torch.equal(chosen_rows(x, ROWS), x[:, ROWS])
    upstream = torch.randn(2, 6, 3, dtype=torch.float64)
    one, other = (torch.autograd.grad(made, x, upstream)[0] for made in (chosen_rows(x, ROWS), x[:, ROWS]))
    assert torch.allclose(one, other, rtol=1e-14, atol=0.0)
    assert torch.autograd.gradcheck(lambda x: chosen_rows(x, ROWS), x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x: chosen_rows(x, ROWS).square(), x)


def test_a_table_of_each_head_is_not_copied():
    torch.manual_seed(0)
    table, row = torch.randn(4, 5000, 8), torch.randint(5000, (1, 3, 6))
    x, weights = torch.randn(3, 4, 3, 8), torch.rand(3, 4, 3, 6)
    chosen = chosen_rows(table, row[0, 0])
    assert torch.equal(chosen, table[:, row[0, 0]])
    products, sums = gather_products(x, table, row), scatter_weighted_sum(weights, table, row)
    torch.testing.assert_close(products, torch.einsum("bhid,hijd->bhij", x, table[:, row[0]]))
    torch.testing.assert_close(sums, torch.einsum("bhij,hijd->bhid", weights, table[:, row[0]]))
    # a number for each vector and row of the table, and a copy of these in another order
    shares, little = 3 * 4 * 3 * 5000 * 4, 5000
    assert held(lambda: chosen_rows(table, row[0, 0])) < little
    assert held(lambda: gather_products(x, table, row)) < shares + little
    assert held(lambda: scatter_weighted_sum(weights, table, row)) < 2 * shares + little


def test_chosen_rows_pass_transforms():
    x = table().detach()
    both = torch.stack([x, 2 * x])
    assert torch.equal(torch.func.vmap(lambda x: chosen_rows(x, ROWS))(both), both[:, :, ROWS])
    assert torch.equal(torch.func.jvp(lambda x: chosen_rows(x, ROWS), (x,), (2 * x,))[1], 2 * x[:, ROWS])


@pytest.mark.parametrize(
    "scheme",
    [
        Deberta(width=8, heads=2, head_width=4, buckets=4, max_distance=8),
        Shaw(head_width=4, past=3, future=1),
        Music(head_width=4, heads=2, max_length=12),
    ],
    ids=lambda scheme: type(scheme).__name__,
)
def test_repeated_vectors_have_no_gradient_that_a_gpu_adds_in_no_fixed_order(scheme):
    made = scheme.relative_vectors(Geometry.full(12))
    names, pending = set(), [x.grad_fn for x in made[:4] if x is not None]
    while pending:
        node = pending.pop()
        if node is not None:
            names.add(node.name())
            pending += [before for before, _ in node.next_functions]
    assert "EmbeddingBackward0" in names
    assert not {"IndexSelectBackward0", "IndexBackward0", "GatherBackward0"} & names

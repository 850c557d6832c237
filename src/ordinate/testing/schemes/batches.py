"""A row of a batch does not feel its neighbours: other rows, padding, other documents."""

from collections.abc import Callable

import torch
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.testing.case import Case, attention, drawn, marks
from ordinate.testing.tolerance import assert_as_close

LENGTHS = (7, 4, 1)
TOKENS = max(LENGTHS)


def padding_on_the_left_changes_nothing(case: Case) -> None:
    """Whatever stands in the pads, NaN included; their outputs are exactly 0."""
    _check_padding(case, lambda length: slice(TOKENS - length, TOKENS))


def padding_on_the_right_changes_nothing(case: Case) -> None:
    """Whatever stands in the pads, NaN included; their outputs are exactly 0."""
    _check_padding(case, lambda length: slice(0, length))


def a_row_does_not_depend_on_its_batch(case: Case) -> None:
    """Bit by bit what each hook makes of a row, however far the others reach; attention by the tolerance rule."""
    scheme = case.scheme()
    far = torch.tensor([0, 40, 57, 3])[:, None]
    where = case.place(Geometry.given((torch.arange(5) + far)[..., None]))
    together = marks(scheme, where)
    q, k, v = drawn(4, 5)
    out = attention(scheme, q, k, v, where)
    for row in range(4):
        alone = case.place(Geometry.given(where.q_pos[row : row + 1]))
        rows = slice(row, row + 1)
        only = attention(scheme, q[rows], k[rows], v[rows], alone)
        assert_as_close(out[rows], only, only, what=f"attention of row {row}")
        for hook, marked in _alone(case, where, row).items():
            whole = together[hook] if together[hook].shape[0] == 1 else together[hook][rows]
            assert whole.equal(marked), f"{hook} gives row {row} something else when it is alone"


def packed_documents_equal_each_alone(case: Case) -> None:
    """Outputs of the whole model; a document of one token included."""
    model, lengths = case.model(), (4, 1, 6)
    x = case.vectors(1, sum(lengths))
    packed = model(x, case.place(Geometry.packed(lengths))).split(lengths, 1)
    for document, (out, part) in enumerate(zip(packed, x.split(lengths, 1), strict=True)):
        alone = model(part, case.place(Geometry.causal(part.shape[1])))
        assert_as_close(out, alone, alone, what=f"document {document}")


def no_gradient_crosses_documents(case: Case) -> None:
    """Exactly 0 between documents, and something inside each."""
    model = case.model()
    x = case.vectors(1, 7).requires_grad_()
    out = model(x, case.place(Geometry.packed((4, 3))))
    (gradient,) = torch.autograd.grad(out[:, :4].square().sum(), x, retain_graph=True)
    assert (gradient[:, 4:] == 0).all(), "the first document feels the second"
    assert (gradient[:, :4] != 0).any(-1).all(), "the first document does not feel itself"
    (gradient,) = torch.autograd.grad(out[:, 4:].square().sum(), x)
    assert (gradient[:, :4] == 0).all(), "the second document feels the first"
    assert (gradient[:, 4:] != 0).any(-1).all(), "the second document does not feel itself"


def _check_padding(case: Case, place: Callable[[int], slice]) -> None:
    real = torch.zeros(len(LENGTHS), TOKENS, dtype=torch.bool)
    for row, length in enumerate(LENGTHS):
        real[row, place(length)] = True
    where, scheme, model = case.place(Geometry.padded(real)), case.scheme(), case.model()
    x = case.vectors(len(LENGTHS), TOKENS)
    for filling in (float("nan"), 1e30):
        out = model(x.masked_fill(~real[..., None], filling), where)
        for row, length in enumerate(LENGTHS):
            kept = slice(row, row + 1), place(length)
            alone = model(x[kept], case.place(Geometry.causal(length)))
            assert_as_close(out[kept], alone, alone, what=f"the row of {length} tokens, pads of {filling}")
        q, k, v = (
            part.masked_fill(~real[:, None, :, None], filling).requires_grad_()
            for part in drawn(len(LENGTHS), TOKENS)
        )
        mixed = attention(scheme, q, k, v, where)
        hidden = ~real[:, None, :, None]
        assert (mixed.masked_select(hidden) == 0).all(), f"attention of pads is not exactly 0, pads of {filling}"
        for name, leaf in zip("qkv", torch.autograd.grad(mixed.square().sum(), (q, k, v)), strict=True):
            assert leaf.isfinite().all(), f"the gradient of {name} is not finite, pads of {filling}"
            assert (leaf.masked_select(hidden) == 0).all(), f"pads of {filling} get a gradient in {name}"


def _alone(case: Case, where: Geometry, row: int) -> dict[str, Tensor]:
    # the same inputs in every row: what differs between rows is where they stand
    rows = case.place(Geometry.given(where.q_pos[row : row + 1].expand(4, -1, -1)))
    scheme = case.scheme()
    return {
        hook: marked if marked.shape[0] == 1 else marked[row : row + 1]
        for hook, marked in marks(scheme, rows).items()
    }

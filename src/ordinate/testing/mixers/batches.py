"""A row of a batch does not feel its neighbours: other rows, padding, other documents."""

from collections.abc import Callable

import torch

from ordinate.geometry import Geometry
from ordinate.testing.closeness import assert_same
from ordinate.testing.mixer import MixerCase

LENGTHS = (9, 4, 1)
TOKENS = max(LENGTHS)


def padding_on_the_left_changes_nothing(case: MixerCase) -> None:
    """Whatever stands in the pads, NaN included; their results are exactly 0, and so are their gradients."""
    _check_padding(case, lambda length: slice(TOKENS - length, TOKENS))


def padding_on_the_right_changes_nothing(case: MixerCase) -> None:
    """Whatever stands in the pads, NaN included; their results are exactly 0, and so are their gradients."""
    _check_padding(case, lambda length: slice(0, length))


def a_row_does_not_depend_on_its_batch(case: MixerCase) -> None:
    """Each row of a batch equals that row alone."""
    x = case.tokens(4, 7)
    x[2] *= 50
    for where in case.geometries(7):
        together = case.mixed(x, where)
        for row in range(4):
            assert_same(together[row : row + 1], case.mixed(x[row : row + 1], where), f"row {row}")


def packed_documents_equal_each_alone(case: MixerCase) -> None:
    """A document of one token included, in every form that the mixer has."""
    lengths = (4, 1, 6)
    x = case.tokens(1, sum(lengths))
    for where in case.geometries(1):
        packed = case.mixed(x, Geometry.packed(lengths, causal=where.hides_future)).split(lengths, 1)
        for document, (out, part) in enumerate(zip(packed, x.split(lengths, 1), strict=True)):
            alone = case.mixed(part, _form(where, part.shape[1]))
            assert_same(out, alone, f"document {document}")


def a_row_of_padding_only_is_zero(case: MixerCase) -> None:
    """And its neighbour is right."""
    real = torch.tensor([[True] * 5, [False] * 5])
    x = case.tokens(2, 5)
    for where in case.geometries(5):
        out = case.mixed(x, Geometry.padded(real, causal=where.hides_future))
        assert (out[1] == 0).all(), "padding gets something"
        assert_same(out[:1], case.mixed(x[:1], where), "the row beside it")


def _form(where: Geometry, tokens: int) -> Geometry:
    return Geometry.causal(tokens) if where.hides_future else Geometry.full(tokens)


def _check_padding(case: MixerCase, place: Callable[[int], slice]) -> None:
    real = torch.zeros(len(LENGTHS), TOKENS, dtype=torch.bool)
    for row, length in enumerate(LENGTHS):
        real[row, place(length)] = True
    for form in case.geometries(1):
        for filling in (float("nan"), 1e30):
            x = case.tokens(len(LENGTHS), TOKENS).masked_fill(~real[..., None], filling).requires_grad_()
            out = case.mixed(x, Geometry.padded(real, causal=form.hides_future))
            for row, length in enumerate(LENGTHS):
                kept = slice(row, row + 1), place(length)
                alone = case.mixed(x[kept].detach(), _form(form, length))
                assert_same(out[kept], alone, f"the row of {length} tokens, pads of {filling}")
            assert (out[~real] == 0).all(), f"the result of pads is not exactly 0, pads of {filling}"
            (gradient,) = torch.autograd.grad(out.square().sum(), x)
            assert (gradient[~real] == 0).all(), f"pads of {filling} get a gradient"
            assert gradient.isfinite().all(), f"a gradient is not finite, pads of {filling}"

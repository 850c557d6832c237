"""Batch independence: other rows, padding and other documents do not affect a sequence."""

from collections.abc import Callable

import torch
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.testing.assert_close import assert_equal_up_to_order
from ordinate.testing.mixer import MixerCase

LENGTHS = (9, 4, 1)
TOKENS = max(LENGTHS)


def padding_on_the_left_changes_nothing(case: MixerCase) -> None:
    """Values at left padding, NaN included, affect no output and no gradient; those there are exactly 0."""
    _check_padding(case, lambda length: slice(TOKENS - length, TOKENS))


def padding_on_the_right_changes_nothing(case: MixerCase) -> None:
    """Values at right padding, NaN included, affect no output and no gradient; those there are exactly 0."""
    _check_padding(case, lambda length: slice(0, length))


def a_row_does_not_depend_on_its_batch(case: MixerCase) -> None:
    """Each row of a batch gives the same result alone."""
    x = case.tokens(4, 7)
    x[2] *= 50
    for where in case.geometries(7):
        together = case.output(x, where)
        for row in range(4):
            assert_equal_up_to_order(together[row : row + 1], case.output(x[row : row + 1], where), f"row {row}")


def packed_documents_equal_each_alone(case: MixerCase) -> None:
    """Packed documents give the same results as each alone, in every form; one document has a single token."""
    lengths = (4, 1, 6)
    x = case.tokens(1, sum(lengths))
    for where in case.geometries(1):
        packed = case.output(x, Geometry.packed(lengths, causal=where.is_causal)).split(lengths, 1)
        for document, (out, part) in enumerate(zip(packed, x.split(lengths, 1), strict=True)):
            alone = case.output(part, _form(where, part.shape[1]))
            assert_equal_up_to_order(out, alone, f"document {document}")


def a_row_of_padding_only_is_zero(case: MixerCase) -> None:
    """The output of a row of padding only is exactly 0, and the other rows are not affected."""
    real = torch.tensor([[True] * 5, [False] * 5])
    x = case.tokens(2, 5)
    for where in case.geometries(5):
        out = case.output(x, Geometry.padded(real, causal=where.is_causal))
        assert (out[1] == 0).all(), "the output at padding is not 0"
        assert_equal_up_to_order(out[:1], case.output(x[:1], where), "the other row")


def _form(where: Geometry, tokens: int) -> Geometry:
    return Geometry.causal(tokens) if where.is_causal else Geometry.full(tokens)


def _check_padding(case: MixerCase, place: Callable[[int], slice]) -> None:
    real = torch.zeros(len(LENGTHS), TOKENS, dtype=torch.bool)
    for row, length in enumerate(LENGTHS):
        real[row, place(length)] = True
    for form in case.geometries(1):
        where, expected = Geometry.padded(real, causal=form.is_causal), None
        for filling in (0.0, *(() if case.not_looked_for() else (float("nan"),)), 1e30):
            x = case.tokens(len(LENGTHS), TOKENS).masked_fill(~real[..., None], filling).requires_grad_()
            how, mixer = f"padding filled with {filling}", case.mixer(x.dtype)
            out = case.output(x, where, mixer)
            for row, length in enumerate(LENGTHS):
                kept = slice(row, row + 1), place(length)
                alone = case.output(x[kept].detach(), _form(form, length))
                assert_equal_up_to_order(out[kept], alone, f"the row of {length} tokens, {how}")
            assert (out[~real] == 0).all(), f"the output at padding is not exactly 0, {how}"
            found = _gradients(out, {"tokens": x, **dict(mixer.named_parameters())})
            assert (found["tokens"][~real] == 0).all(), f"padding gets a gradient, {how}"
            expected = found if expected is None else expected
            for name, gradient in found.items():
                assert_equal_up_to_order(gradient, expected[name], f"gradient of {name}, {how}")


def _gradients(out: Tensor, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradients of a loss that outputs at padding, which are 0, enter too; 0 where it does not depend on a leaf."""
    learned = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    found = torch.autograd.grad((out.square() + out).sum(), list(learned.values()), materialize_grads=True)
    return dict(zip(learned, found, strict=True))

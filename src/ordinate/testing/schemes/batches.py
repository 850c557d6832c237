"""Independence of a sequence from the rest of its batch: other sequences, padding, packed documents."""

from collections.abc import Callable

import torch
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.schemes._scheme import Scheme
from ordinate.testing.case import SchemeCase, attention, hook_outputs, random_qkv
from ordinate.testing.check import makes_tensors_on_a_gpu
from ordinate.testing.tolerance import assert_as_close

LENGTHS = (7, 4, 1)
TOKENS = max(LENGTHS)


def padding_on_the_left_changes_nothing(case: SchemeCase) -> None:
    """For any content of the padding, NaN included: also gradients; outputs at padding and its gradients are 0."""
    _check_padding(case, lambda length: slice(TOKENS - length, TOKENS))


def padding_on_the_right_changes_nothing(case: SchemeCase) -> None:
    """For any content of the padding, NaN included: also gradients; outputs at padding and its gradients are 0."""
    _check_padding(case, lambda length: slice(0, length))


def a_sequence_does_not_depend_on_its_batch(case: SchemeCase) -> None:
    """Hook outputs are bit-identical, whatever the positions of the others; attention agrees within the tolerance."""
    scheme = case.scheme()
    far = torch.tensor([0, 40, 57, 3])[:, None]
    where = case.with_axes(Geometry.from_positions((torch.arange(5) + far)[..., None]))
    together = hook_outputs(scheme, where)
    q, k, v = random_qkv(4, 5)
    out = attention(scheme, q, k, v, where)
    for row in range(4):
        alone = case.with_axes(Geometry.from_positions(where.q_pos[row : row + 1]))
        rows = slice(row, row + 1)
        only = attention(scheme, q[rows], k[rows], v[rows], alone)
        assert_as_close(out[rows], only, only, what=f"attention of row {row}")
        for hook, marked in _alone(case, where, row).items():
            whole = together[hook] if together[hook].shape[0] == 1 else together[hook][rows]
            assert whole.equal(marked), f"{hook} of row {row} differs when it is alone"


def packed_documents_equal_each_alone(case: SchemeCase) -> None:
    """For outputs of the whole model, including a document of one token."""
    model, lengths = case.model(), (4, 1, 6)
    x = case.embeddings(1, sum(lengths))
    packed = model(x, case.with_axes(Geometry.packed(lengths))).split(lengths, 1)
    for document, (out, part) in enumerate(zip(packed, x.split(lengths, 1), strict=True)):
        alone = model(part, case.with_axes(Geometry.causal(part.shape[1])))
        assert_as_close(out, alone, alone, what=f"document {document}")


def no_gradient_crosses_documents(case: SchemeCase) -> None:
    """Gradients are exactly 0 between documents, and not 0 inside each."""
    model = case.model()
    x = case.embeddings(1, 7).requires_grad_()
    out = model(x, case.with_axes(Geometry.packed((4, 3))))
    (gradient,) = torch.autograd.grad(out[:, :4].square().sum(), x, retain_graph=True)
    assert (gradient[:, 4:] == 0).all(), "the first document depends on the second"
    assert (gradient[:, :4] != 0).any(-1).all(), "the first document does not depend on itself"
    (gradient,) = torch.autograd.grad(out[:, 4:].square().sum(), x)
    assert (gradient[:, :4] == 0).all(), "the second document depends on the first"
    assert (gradient[:, 4:] != 0).any(-1).all(), "the second document does not depend on itself"


def _check_padding(case: SchemeCase, place: Callable[[int], slice]) -> None:
    real = torch.zeros(len(LENGTHS), TOKENS, dtype=torch.bool)
    for row, length in enumerate(LENGTHS):
        real[row, place(length)] = True
    where, scheme, model = case.with_axes(Geometry.padded(real)), case.scheme(), case.model()
    x = case.embeddings(len(LENGTHS), TOKENS)
    for filling in (*(() if makes_tensors_on_a_gpu() else (float("nan"),)), 1e30):
        out = model(x.masked_fill(~real[..., None], filling), where)
        for row, length in enumerate(LENGTHS):
            kept = slice(row, row + 1), place(length)
            alone = model(x[kept], case.with_axes(Geometry.causal(length)))
            assert_as_close(out[kept], alone, alone, what=f"the row of {length} tokens, padding of {filling}")
        _check_gradients(scheme, where, real[:, None, :, None], filling)


def _check_gradients(scheme: Scheme, where: Geometry, real: Tensor, filling: float) -> None:
    """Check outputs and gradients at padding, and that parameters have those of a padding of zeros."""
    learned = [(name, p) for name, p in scheme.named_parameters() if p.requires_grad]

    def gradients(filling: float) -> tuple[Tensor, tuple[Tensor, ...]]:
        parts = random_qkv(len(LENGTHS), TOKENS)
        q, k, v = (part.masked_fill(~real, filling).requires_grad_() for part in parts)
        mixed = attention(scheme, q, k, v, where)
        inputs = q, k, v, *(p for _, p in learned)
        given = torch.autograd.grad(mixed.square().sum(), inputs, allow_unused=True, materialize_grads=True)
        return mixed, given

    mixed, found = gradients(filling)
    zero = (mixed.masked_select(~real) == 0).all()
    assert zero, f"attention output at padding is not exactly 0, padding of {filling}"
    for name, leaf in zip("qkv", found, strict=False):
        assert leaf.isfinite().all(), f"the gradient of {name} is not finite, padding of {filling}"
        assert (leaf.masked_select(~real) == 0).all(), f"padding of {filling} gets a gradient in {name}"
    _, exact = gradients(0.0)
    for (name, _), leaf, other in zip(learned, found[3:], exact[3:], strict=True):
        assert_as_close(leaf, other, other, what=f"the gradient of the parameter {name}, padding of {filling}")


def _alone(case: SchemeCase, where: Geometry, row: int) -> dict[str, Tensor]:
    # `marks` draws other inputs for each row: repeat the positions and select the row, to compare equal inputs
    rows = case.with_axes(Geometry.from_positions(where.q_pos[row : row + 1].expand(4, -1, -1)))
    scheme = case.scheme()
    return {
        hook: marked if marked.shape[0] == 1 else marked[row : row + 1]
        for hook, marked in hook_outputs(scheme, rows).items()
    }

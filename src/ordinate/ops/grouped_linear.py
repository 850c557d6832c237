"""Linear layers of groups of rows, each group with a matrix of its own, as the experts of a mixture need them."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.core.tensors import has_values
from ordinate.ops.linear_layer import linear
from ordinate.ops.native.plain_tensors import are_plain, is_observed

# most rows of a group, on average, for which one call for all groups is made. On a Zen 4 it is faster than one call
# for each group at 4 to 16 rows, and not at 256 or more; between them nothing was measured
FEW_ROWS = 64
# most rows that are multiplied one by one, as those of a decoding step: only their matrices are read
SINGLE_ROWS = 16
# of a row of operands of `grouped_mm` [bytes]
ALIGNED = 16
Rows = Float[Tensor, "rows inner"]
Groups = Int[Tensor, " rows"]


def grouped_linear(
    x: Rows,
    weight: Float[Tensor, "groups outer inner"],
    bias: Float[Tensor, "groups outer"] | None,
    groups: Groups,
) -> Float[Tensor, "rows outer"]:
    """Return x W^T + b with the matrix and the bias of the group of each row.

        y[r] = W[groups[r]] x[r] + b[groups[r]]

    Each row is multiplied by one matrix only, those of a group at once; on a CPU few rows of each are one call of
    `torch.nn.functional.grouped_mm`, and the few rows of a decoding step are multiplied one by one, so that matrices
    of other groups are not read. Where torch.compile traces, and where tensors have no values, the product is one
    operator of any number of rows in each group.

    Args:
        x: the rows, those of a group beside each other.
        weight: a matrix for each group.
        bias: a bias for each group; None: none.
        groups: the group of each row, in ascending order.
    """
    traced = torch.compiler.is_compiling()
    if traced or any(_lacks_values(y) for y in (x, weight, groups)):
        mapped = not traced and any(torch._C._functorch.is_functorch_wrapped_tensor(y) for y in (x, weight, groups))
        out = (_MappedProduct.apply if mapped else _product)(x, weight, groups)
        return out if bias is None else out + bias.to(out.dtype)[groups]
    learns = torch.is_grad_enabled() and any(y is not None and y.requires_grad for y in (x, weight, bias))
    if 0 < len(x) <= min(SINGLE_ROWS, len(weight)) and not learns and groups.is_cpu:
        return torch.cat(
            [
                linear(row[None], weight[group], None if bias is None else bias[group])
                for row, group in zip(x, groups.tolist(), strict=True)
            ]
        )
    if _few(x, weight):
        ends = torch.searchsorted(groups, torch.arange(len(weight)), right=True, out_int32=True)
        out = nn.functional.grouped_mm(x, weight.mT, offs=ends)
        return out if bias is None else out + bias[groups]
    biases = [None] * len(weight) if bias is None else bias.unbind()
    parts = x.split(_counts(groups, len(weight)))
    # unbind, whose gradient is one tensor; that of a row of the whole would be as large as the whole
    products = [
        linear(*given) for given in zip(parts, weight.unbind(), biases, strict=True) if len(given[0]) or not len(x)
    ]
    return torch.cat(products)


def _few(x: Rows, weight: Tensor) -> bool:
    """Whether groups have few rows, of plain tensors on a CPU, in a type and sizes that `grouped_mm` takes."""
    if not 0 < len(x) <= FEW_ROWS * len(weight) or x.dtype not in (torch.float32, torch.bfloat16):
        return False
    fits = x.is_contiguous() and weight.is_contiguous()
    fits = fits and not any(size * x.itemsize % ALIGNED for size in weight.shape[1:])
    # autocast would convert the operands
    special = torch.is_autocast_enabled("cpu") or is_observed(x)
    return fits and are_plain(x, weight) and not special


def _lacks_values(x: Tensor) -> bool:
    # those that torch.func only differentiates have theirs
    while torch._C._functorch.is_gradtrackingtensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return not has_values(x)


def _counts(groups: Groups, count: int) -> list[int]:
    """Return the number of rows in each of this many groups."""
    return torch.bincount(groups, minlength=count).tolist()


@torch.library.custom_op("ordinate::grouped_product", mutates_args=())
def _product(x: Tensor, weight: Tensor, groups: Tensor) -> Tensor:
    """Product of each row with the matrix of its group."""
    out = x.new_empty(len(x), weight.shape[1])
    start = 0
    for count, matrix in zip(_counts(groups, len(weight)), weight, strict=True):
        out[start : start + count] = x[start : start + count] @ matrix.mT
        start += count
    return out


@torch.library.custom_op("ordinate::grouped_outer_product", mutates_args=())
def _outer_product(y: Tensor, x: Tensor, groups: Tensor, count: int) -> Tensor:
    """Sums of the outer products of the rows of each group: the gradient of its matrix."""
    out = x.new_empty(count, y.shape[1], x.shape[1])
    start = 0
    for place, size in enumerate(_counts(groups, count)):
        out[place] = y[start : start + size].mT @ x[start : start + size]
        start += size
    return out


@_product.register_fake
def _product_like(x: Tensor, weight: Tensor, groups: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


@_outer_product.register_fake
def _outer_product_like(y: Tensor, x: Tensor, groups: Tensor, count: int) -> Tensor:
    return x.new_empty(count, y.shape[1], x.shape[1])


def _save_product(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _product_gradients(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weight, groups = ctx.saved_tensors
    return _product(slope, weight.mT, groups), _outer_product(slope, x, groups, weight.shape[0]), None


def _save_outer_product(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _outer_product_gradients(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None, None]:
    y, x, groups = ctx.saved_tensors
    return _product(x, slope, groups), _product(y, slope.mT, groups), None, None


_product.register_autograd(_product_gradients, setup_context=_save_product)
_outer_product.register_autograd(_outer_product_gradients, setup_context=_save_outer_product)


class _MappedProduct(torch.autograd.Function):
    """`_product` inside transforms of torch.func that map over inputs, which an operator's gradients cannot serve."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, groups: Tensor) -> Tensor:
        return _product(x, weight, groups)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor, Tensor, None]:
        x, weight, groups = ctx.saved_tensors
        own = _MappedProduct.apply(slopes[0], weight.mT, groups)
        return own, _MappedOuterProduct.apply(slopes[0], x, groups, weight.shape[0]), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, weight, groups = ctx.saved_tensors
        return _MappedProduct.apply(tangents[0], weight, groups) + _MappedProduct.apply(x, tangents[1], groups)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Tensor) -> tuple[Tensor, int]:
        weight, size = given[1], info.batch_size
        if in_dims[1] is None:
            # the rows of all inputs are sorted by group together
            x, groups = (_batched(given[place], in_dims[place], size) for place in (0, 2))
            together, order = groups.flatten().sort(stable=True)
            out = _MappedProduct.apply(x.flatten(0, 1)[order], weight, together)[order.argsort()]
        else:
            x, weight, groups = (_batched(y, dim, size) for y, dim in zip(given, in_dims, strict=True))
            out = _MappedProduct.apply(x.flatten(0, 1), weight.flatten(0, 1), _apart(groups, weight.shape[1]))
        return out.unflatten(0, x.shape[:2]), 0


class _MappedOuterProduct(torch.autograd.Function):
    """`_outer_product`, likewise."""

    @staticmethod
    def forward(y: Tensor, x: Tensor, groups: Tensor, count: int) -> Tensor:
        return _outer_product(y, x, groups, count)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:3])
        ctx.save_for_forward(*inputs[:3])
        ctx.count = inputs[3]

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor, Tensor, None, None]:
        y, x, groups = ctx.saved_tensors
        own = _MappedProduct.apply(x, slopes[0], groups)
        return own, _MappedProduct.apply(y, slopes[0].mT, groups), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        y, x, groups = ctx.saved_tensors
        own = _MappedOuterProduct.apply(tangents[0], x, groups, ctx.count)
        return own + _MappedOuterProduct.apply(y, tangents[1], groups, ctx.count)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
        count, size = given[3], info.batch_size
        y, x, groups = (_batched(one, dim, size) for one, dim in zip(given[:3], in_dims[:3], strict=True))
        out = _MappedOuterProduct.apply(y.flatten(0, 1), x.flatten(0, 1), _apart(groups, count), size * count)
        return out.unflatten(0, (size, count)), 0


def _batched(x: Tensor, dim: int | None, size: int) -> Tensor:
    """The tensor with the mapped axis first; one that is not mapped is the same for all."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _apart(groups: Tensor, count: int) -> Tensor:
    """Groups of the rows of one input after another, each input with `count` groups of its own."""
    return (groups + count * torch.arange(len(groups), device=groups.device)[:, None]).flatten()

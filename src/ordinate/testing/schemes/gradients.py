"""Gradients of parameters and hooks."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from ordinate.attention._attend import attend_encoded
from ordinate.core.geometry import Geometry
from ordinate.testing.case import HEADS, KV_HEADS, SchemeCase, random_qkv
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close


def every_parameter_gets_a_gradient(case: SchemeCase) -> None:
    """A finite, nonzero one; except parameters with requires_grad=False."""
    model = case.model()
    trained = ((name, value) for name, value in model.named_parameters() if value.requires_grad)
    named = [(name, value) for name, value in trained if name.startswith("schemes.")]
    if not named:
        raise InapplicableError("it has no trainable parameters")
    model(case.embeddings(2, 9), case.with_axes(Geometry.causal(9))).square().sum().backward()
    for name, parameter in named:
        assert parameter.grad is not None, f"{name} gets no gradient"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert (parameter.grad != 0).any(), f"the gradient of {name} is zero"


def every_hook_passes_gradcheck(case: SchemeCase) -> None:
    """Compared with finite differences in float64 (gradcheck), for inputs and parameters."""
    _check_hooks(case, second=False)


def every_hook_passes_gradgradcheck(case: SchemeCase) -> None:
    """Second derivatives compared with finite differences in float64: none may be dropped silently."""
    _check_hooks(case, second=True)


def per_sample_gradients_are_those_of_each_sample(case: SchemeCase) -> None:
    """torch.func.vmap(grad(attention)), which custom autograd functions and branches by value break."""
    scheme, where = case.scheme().eval(), case.with_axes(Geometry.causal(5))
    inputs = random_qkv(2, 5)

    def loss(*one: Tensor) -> Tensor:
        q, k, v = (x[None] for x in one)
        at = scheme.at(where)
        return attend_encoded(at.encode_all(q, k), v, at).square().sum()

    with warnings.catch_warnings():
        # PyTorch warns of operations that it maps one sample at a time
        warnings.simplefilter("ignore")
        made = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*inputs)
    leaves = [x.requires_grad_() for x in inputs]
    total = sum((loss(*one) for one in zip(*leaves, strict=True)), torch.zeros(()))
    for name, one, other in zip("qkv", made, torch.autograd.grad(total, leaves), strict=True):
        assert_as_close(one, other, other, what=f"the gradient of each sample's {name}")


def _check_hooks(case: SchemeCase, *, second: bool) -> None:
    scheme, where = case.scheme(), case.with_axes(Geometry.causal(3))
    case.skip_unless_hook("embed", "encode_query", "encode_key", "score", "bias", "content_bias", "value_bias")
    x, (q, k, _) = case.embeddings(1, 3), random_qkv(1, 3)
    weights = torch.softmax(q @ k.repeat_interleave(HEADS // KV_HEADS, 1).mT, -1)
    full = k.repeat_interleave(HEADS // KV_HEADS, 1)
    calls: dict[str, tuple[Callable[..., Tensor | None], tuple[Tensor, ...]]] = {
        "embed": (lambda x: scheme.embed(x, where.q_pos), (x,)),
        "encode_query": (lambda q: scheme.encode_query(q, where.q_pos), (q,)),
        "encode_key": (lambda k: scheme.encode_key(k, where.q_pos), (k,)),
        "score": (lambda q, k: scheme.score(q, k, where), (q, full)),
        "bias": (lambda: scheme.bias(where), ()),
        "content_bias": (lambda q, k: scheme.content_bias(q, k, where), (q, full)),
        "value_bias": (lambda weights: scheme.value_bias(weights, where), (weights,)),
    }
    parameters = dict(scheme.named_parameters())
    for hook in calls.keys() & set(scheme.hooks):
        call, inputs = calls[hook]
        leaves = [tensor.detach().clone().requires_grad_() for tensor in (*inputs, *parameters.values())]
        if leaves:
            _check_hook(hook, scheme, call, leaves, list(parameters), second=second)


def _check_hook(
    hook: str,
    scheme: torch.nn.Module,
    call: Callable[..., Tensor | None],
    leaves: list[Tensor],
    names: list[str],
    *,
    second: bool,
) -> None:
    inputs = len(leaves) - len(names)

    def run(*values: Tensor) -> Tensor:
        # projecting the output onto fixed weights reduces the number of finite differences
        given = dict(zip(names, values[inputs:], strict=True))
        out = torch.func.functional_call(
            _Hook(scheme, call), {f"scheme.{name}": v for name, v in given.items()}, values[:inputs]
        )
        if out is None:
            return values[0].sum()
        weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).cos().reshape(out.shape)
        return (out * weights).sum()

    if not second:
        assert torch.autograd.gradcheck(run, leaves, fast_mode=True), f"the gradient of {hook} is wrong"
        return
    # a gradient that is constant has no graph, and one that was detached has none either: both are compared with 0
    out = torch.autograd.grad(run(*leaves), leaves, create_graph=True, materialize_grads=True)
    if any(x.requires_grad for x in out):
        assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True), f"second derivatives of {hook} are wrong"
    else:
        _need_constant_gradient(run, leaves, hook)


def _need_constant_gradient(run: Callable[..., Tensor], leaves: list[Tensor], hook: str) -> None:
    moved = [[(x.detach() + by).requires_grad_() for x in leaves] for by in (0.0, 0.1)]
    one, other = (torch.autograd.grad(run(*own), own, materialize_grads=True) for own in moved)
    same = all(torch.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in zip(one, other, strict=True))
    assert same, f"second derivatives of {hook} are dropped: its gradient changes, and cannot be differentiated"


class _Hook(torch.nn.Module):
    def __init__(self, scheme: torch.nn.Module, call: Callable[..., Tensor | None]) -> None:
        super().__init__()
        self.scheme, self.call = scheme, call

    def forward(self, *inputs: Tensor) -> Tensor | None:
        return self.call(*inputs)

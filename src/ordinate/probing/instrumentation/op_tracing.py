"""Hooks on attention written in torch operations: matmul, softmax and SDPA calls are intercepted."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from ordinate.core.shapes import Keys, Queries, Values
from ordinate.ops.heads import repeat_keys
from ordinate.probing._adapter import AttentionRecord, Hooks
from ordinate.probing.instrumentation.patching import patched_attribute
from ordinate.probing.instrumentation.softmax_hooks import SOFTMAX_FUNCTIONS, HookedSoftmax

# positions of the two factors among the arguments of each function
MATMULS: Mapping[Any, tuple[int, int]] = {
    torch.matmul: (0, 1),
    Tensor.matmul: (0, 1),
    Tensor.__matmul__: (0, 1),
    torch.bmm: (0, 1),
    Tensor.bmm: (0, 1),
    torch.baddbmm: (1, 2),
    Tensor.baddbmm: (1, 2),
}
QKV = tuple[Queries, Keys, Values]


@dataclass(eq=False)
class AttentionCall:
    """One call of the attention module of a layer.

    The first product of two factors with a square result over tokens is q k^T; a softmax over a square matrix of
    tokens is the attention pattern; the next product with a square first factor is that with the values.

    Args:
        layer: index of the layer.
        rows: batch size.
        tokens: number of tokens.
        watch: the hooks.
        given: replacements of queries, keys and values; None: those of the model.
        ends: whether to raise `Found` once queries, keys and values are known.
    """

    layer: int
    rows: int
    tokens: int
    watch: Hooks
    given: QKV | None = None
    ends: bool = False
    q: Tensor | None = None
    k: Tensor | None = None
    v: Tensor | None = None
    softmax: HookedSoftmax | None = None

    def product(self, run: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
        """Handle a matrix product: of queries and keys, of weights and values, or another one."""
        if self.softmax is None:
            return self._compared(run, a, b)
        if self.v is not None or a.shape[-2:] != (self.tokens, self.tokens):
            return run(a, b)
        if self.given is not None:
            b = _as(self.given[2], b)
        self.v = self._heads(b)
        if self.ends and self.q is not None and self.k is not None:
            raise FoundQKV((self.q, self.k, self.v))
        out = run(a, b)
        if "head_output" in self.watch.overridden:
            new = self.watch.head_output(self.layer, self._heads(out))
            out = out if new is None else _as(new, out)
        if "attention" in self.watch.overridden and self.softmax.seen and self.q is not None and self.k is not None:
            self.watch.attention(
                self.layer, AttentionRecord(self.q, self.k, self.v, *self.softmax.seen, self._heads(out))
            )
        return out

    def weigh(self, run: Callable[[Tensor], Tensor], scores: Tensor) -> Tensor:
        """Handle a softmax: that of the attention scores, or another one."""
        if self.q is None or scores.shape[-2:] != (self.tokens, self.tokens):
            return run(scores)
        self.softmax = HookedSoftmax(self.watch, self.layer, self.tokens)
        flat = scores.ndim == 3
        weights = self.softmax(lambda x: self._heads(run(x.flatten(0, 1) if flat else x)), self._heads(scores))
        return weights.flatten(0, 1) if flat else weights

    def whole(self, given: QKV, mask: Tensor | None, causal: bool, scale: float | None) -> Tensor:
        """Replace a call of scaled_dot_product_attention by its formula."""
        q, k, v = given
        # grouped-query attention: each key head serves a group of adjacent query heads
        if k.shape[1] < q.shape[1]:
            k, v = (repeat_keys(x, q.shape[1]) for x in (k, v))
        scores = self.product(torch.matmul, q, k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
            scores = scores.masked_fill(~seen, float("-inf"))
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        return self.product(torch.matmul, self.weigh(lambda x: x.softmax(-1), scores), v)

    def _compared(self, run: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
        first = self.q is None and a.shape[-2] == b.shape[-1] == self.tokens and a.ndim == b.ndim > 2
        if not first:
            return run(a, b)
        if self.given is not None:
            a, b = _as(self.given[0], a), _as(self.given[1].mT, b)
        self.q, self.k = self._heads(a), self._heads(b).mT
        return run(a, b)

    def _heads(self, x: Tensor) -> Tensor:
        return x if x.ndim == 4 else x.unflatten(0, (self.rows, -1))


class FoundQKV(Exception):  # noqa: N818 - control flow: stops a pass that is run for these tensors only
    """Carries queries, keys and values."""

    def __init__(self, marked: QKV) -> None:
        super().__init__()
        self.marked = marked


def _as(new: Tensor, like: Tensor) -> Tensor:
    return new.reshape(like.shape).to(like.dtype)


class TracingMode(TorchFunctionMode):
    """Torch function mode that passes matrix products, softmax and SDPA to the current `AttentionCall`, if any."""

    def __init__(self) -> None:
        super().__init__()
        self.now: AttentionCall | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Intercept the operations of attention; run other functions unchanged."""
        kwargs, now = kwargs or {}, self.now
        if now is None:
            return func(*args, **kwargs)
        if func in SOFTMAX_FUNCTIONS:
            return now.weigh(lambda scores: func(scores, *args[1:], **kwargs), args[0])
        if func in MATMULS:
            return self._product(now, func, args, kwargs)
        if func is scaled_dot_product_attention:
            return now.whole(*_call(*args, **kwargs))
        return func(*args, **kwargs)

    def _product(self, now: AttentionCall, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        names = {"batch1": 1, "batch2": 2, "mat2": 1, "other": 1}
        given = dict(enumerate(args)) | {names[name]: x for name, x in kwargs.items() if name in names}
        rest = {name: x for name, x in kwargs.items() if name not in names}
        first, second = MATMULS[func]

        def run(a: Tensor, b: Tensor) -> Tensor:
            both = given | {first: a, second: b}
            return func(*(both[place] for place in sorted(both)), **rest)

        return now.product(run, given[first], given[second])

    @contextmanager
    def follow(self, module: nn.Module, layer: int, watch: Hooks) -> Iterator[None]:
        """Treat each call of a module as the attention of a layer."""
        original = module.forward

        def forward(*given: Any, **named: Any) -> Any:
            x = next(x for x in (*given, *named.values()) if isinstance(x, Tensor) and x.is_floating_point())
            under = self.now
            try:
                marked = None
                if "qkv" in watch.overridden:
                    marked = self._marked(partial(original, *given, **named), layer, x, watch)
                self.now = AttentionCall(layer, x.shape[0], x.shape[1], watch, marked)
                return original(*given, **named)
            finally:
                self.now = under

        with patched_attribute(module, "forward", forward):
            yield

    def _marked(self, run: Callable[[], Any], layer: int, x: Tensor, watch: Hooks) -> QKV | None:
        """Run the module once up to the use of the values, and return what the `marked` hook makes of q, k and v.

        A second run is needed: queries and keys are used before the values are known.
        """
        self.now = AttentionCall(layer, x.shape[0], x.shape[1], Hooks(), ends=True)
        try:
            run()
        except FoundQKV as found:
            return watch.qkv(layer, *found.marked)
        return None


def _call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[QKV, Tensor | None, bool, float | None]:
    return (query, key, value), attn_mask, is_causal, scale


class AttentionSearch(TorchFunctionMode):
    """Find attention modules: the innermost module with parameters around SDPA or a softmax of square scores."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[nn.Module] = []
        self.found: list[nn.Module] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function, and record the module that calls softmax or SDPA."""
        square = func in SOFTMAX_FUNCTIONS and args[0].ndim > 2 and args[0].shape[-1] == args[0].shape[-2]
        if square or func is scaled_dot_product_attention:
            owner = next((m for m in reversed(self.inside) if next(m.parameters(), None) is not None), None)
            if owner is not None and owner not in self.found:
                self.found.append(owner)
        return func(*args, **(kwargs or {}))

    @contextmanager
    def within(self, model: nn.Module) -> Iterator[None]:
        """Track the stack of running modules."""
        handles = []
        for module in model.modules():
            handles.append(module.register_forward_pre_hook(lambda m, _: self.inside.append(m)))
            handles.append(module.register_forward_hook(lambda *_: self.inside.pop() and None, always_call=True))
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()

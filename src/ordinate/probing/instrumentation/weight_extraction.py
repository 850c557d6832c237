"""Extraction of the projection matrices W_Q, W_K, W_V and W_O of an external model, by evaluating its layers."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.shapes import Keys, Queries, Tokens, Values, Weights
from ordinate.probing._adapter import Hooks, ModelInfo, NotApplicable, Projection
from ordinate.probing.instrumentation.linear_maps import linear_map_matrices, norm_weight
from ordinate.probing.instrumentation.patching import patched_attribute, patched_first_input, patched_output
from ordinate.probing.instrumentation.residual_adds import AttentionOutput, CallTrace, first_output
from ordinate.probing.instrumentation.rope_hooks import ROPE_FUNCTION, no_rope

RunLayer = Callable[[Tokens, Hooks], object]
"""Runs a layer with these tokens as input of its attention, with hooks."""


@dataclass(frozen=True, eq=False)
class LayerExtraction:
    """A layer of a model, and how to run it.

    Args:
        number: index of the layer, from 0.
        layer: the layer.
        attention: its attention module.
        branch: what is added to the residual stream after attention; None: not found.
        run: a forward pass of the model with a batch of one row.
        attend: the context managers that install hooks on attention.
    """

    number: int
    layer: nn.Module
    attention: nn.Module
    branch: AttentionOutput | None
    run: Callable[[], object]
    attend: Callable[[Hooks], Iterator[Any]]

    def projection(self, facts: ModelInfo) -> Projection:
        """Extract the projection matrices, before any norm of queries and keys.

        Raises:
            NotApplicable: queries, keys, values or the output are not linear maps.
        """
        given, named = captured_call(self.layer, self.run)
        entered: list[Tokens] = []
        with patched_first_input(self.attention, entered.append):
            self.layer(*given, **named)
        # with window attention every window gets the same tokens; only the output of the attention module itself is
        # still in their order
        x, windows = entered[0][:1], len(entered[0])
        like = x.new_zeros(facts.width)

        def call(x: Tokens, watch: Hooks) -> None:
            with ExitStack() as changes:
                for change in [*self.attend(watch), patched_first_input(self.attention, x.expand_as)]:
                    changes.enter_context(change)
                self.layer(*given, **named)

        found, scale = (
            projection_matrices(self.attention, call, like, x.shape[1]),
            norm_weight_before(self.layer, self.attention, self.run, like),
        )
        if found is None or scale is None:
            raise NotApplicable(
                f"queries and keys of layer {self.number} of {facts.name} are not linear maps of its input"
            )
        query, key, value = (part.to(like.dtype) for part in found)
        whole = AttentionOutput(self.attention)
        for site in [whole] if windows > 1 or self.branch is None else [self.branch, whole]:
            read = output_matrices(site.module, call, x, facts.heads, value.shape[2])
            if read is not None and read.shape[2] == facts.width:
                # what is added is no linear map of the heads, but what attention returns is
                normed = windows == 1 and self.branch is not None and site is whole
                return Projection(query, key, value, read * site.scale, scale, normed)
        raise NotApplicable(
            f"the attention output of layer {self.number} of {facts.name} is not a linear map of its heads"
        )


class LayerReached(Exception):  # noqa: N818 - control flow: stops the pass at the layer in question
    """Carries the arguments that a layer was called with."""

    def __init__(self, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__()
        self.given, self.named = given, named


def captured_call(layer: nn.Module, run: Callable[[], object]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a layer in a forward pass; the pass stops there.

    There is None in the place of a KV cache, which some models make whether it is used or not: a layer that is called
    again would add to it.
    """

    def reach(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        raise LayerReached(given, named)

    handle = layer.register_forward_pre_hook(reach, with_kwargs=True)
    try:
        run()
    except LayerReached as reached:
        return tuple(map(_no_cache, reached.given)), {name: _no_cache(x) for name, x in reached.named.items()}
    finally:
        handle.remove()
    raise NotApplicable("a layer is not called in a forward pass")


def _no_cache(x: Any) -> Any:
    return None if hasattr(x, "get_seq_length") else x


@contextmanager
def without_norm_and_rope(attention: nn.Module) -> Iterator[None]:
    """Disable norms and RoPE of queries and keys in an attention module."""
    space = sys.modules[type(attention).__module__]
    with ExitStack() as changes:
        for module in attention.modules():
            if "Norm" in type(module).__name__:
                changes.enter_context(patched_attribute(module, "forward", lambda x: x))
        if hasattr(space, ROPE_FUNCTION):
            changes.enter_context(patched_attribute(space, ROPE_FUNCTION, no_rope))
        yield


def projection_matrices(
    attention: nn.Module, call: RunLayer, like: Float[Tensor, "width"], rows: int
) -> list[Tensor] | None:
    """Return the matrices W_Q, W_K and W_V by head; None if the projections are not linear."""

    def maps(x: Tokens) -> tuple[Queries, Keys, Values]:
        record = CaptureQKV()
        call(x, record)
        q, k, v = (part[:1] for part in record.marked_)
        return q, k, v

    with without_norm_and_rope(attention):
        return linear_map_matrices(maps, like, rows)


class CaptureQKV(Hooks):
    """Store queries, keys and values of a layer."""

    marked_: tuple[Queries, Keys, Values]

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        self.marked_ = q, k, v


class IdentityHead(Hooks):
    """Intervention: identity attention with given values in one head, and no attention in the others."""

    def __init__(self, head: int, values: Float[Tensor, "n e"]) -> None:
        self.head, self.values = head, values

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        return q, k, self.values.to(v.dtype).expand_as(v)

    def attention_pattern(self, layer: int, weights: Weights) -> Weights:
        own = torch.zeros_like(weights)
        own[:, self.head] = torch.eye(weights.shape[2], dtype=own.dtype, device=own.device)
        return own


def output_matrices(
    site: nn.Module, call: RunLayer, x: Tokens, heads: int, channels: int
) -> Float[Tensor, "h e width"] | None:
    """Return the output projection W_O by head; None if the output of `site` is not linear in the head outputs.

    Args:
        site: the module whose output is taken.
        call: runs the layer.
        x: input tokens of its attention.
        heads: query heads.
        channels: width of the values of a head.
    """
    count = x.shape[1]

    def out(head: int, values: Float[Tensor, "some e"]) -> Float[Tensor, "some width"]:
        given = values.new_zeros(count, channels)
        given[: len(values)] = values
        kept: list[Tensor] = []
        with patched_output(site, lambda out: kept.append(first_output(out))):
            call(x, IdentityHead(head, given))
        return kept[0].flatten(0, -2)[: len(values)]

    unit = torch.eye(channels, dtype=x.dtype, device=x.device)
    none = out(0, unit[:1] * 0)
    made = torch.stack([torch.cat([out(head, part) - none for part in unit.split(count)]) for head in range(heads)])
    generator = torch.Generator().manual_seed(0)
    tried = torch.randn(1, channels, generator=generator).to(x)
    seen, expected = out(heads - 1, tried) - none, tried @ made[-1]
    close = (seen - expected).abs().max() <= 256 * torch.finfo(x.dtype).eps * seen.abs().max()
    return made if bool(close) else None


def norm_weight_before(
    layer: nn.Module, attention: nn.Module, run: Callable[[], object], like: Float[Tensor, "width"]
) -> Float[Tensor, "width"] | None:
    """Return the weight of the norm between the input of a layer and its attention; None if no norm matches."""
    trace = CallTrace()
    with trace.follow(layer):
        run()
    whole = next(event for event in trace.events if event.module is layer)
    look = next(event for event in trace.events if event.module is attention)
    if look.entered is None or whole.entered is None:
        return None
    if look.entered.equal(whole.entered):
        return norm_weight(None, like)
    before = [event for event in trace.events if event.left is not None and 0 < event.ended < look.began]
    norms = [event.module for event in before if event.left is not None and _regrouped(event.left, look.entered)]
    return norm_weight(norms[0], like) if norms else None


def _regrouped(tokens: Tensor, entered: Tensor) -> bool:
    """Whether the same tokens enter attention in any order: windows permute them and may pad with zeros."""
    if tokens.shape[-1] != entered.shape[-1]:
        return False
    one, other = (x[(x != 0).any(-1)].sort(0).values for x in (tokens, entered))
    return one.equal(other)

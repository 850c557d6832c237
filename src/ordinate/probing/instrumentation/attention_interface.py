"""Hooks in attention that goes through transformers' AttentionInterface."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.core.shapes import Visible
from ordinate.probing._adapter import AttentionRecord, Hooks, Inputs, NotApplicable
from ordinate.probing.instrumentation.black_box_model import Change, Run
from ordinate.probing.instrumentation.hf_model import HFModel
from ordinate.probing.instrumentation.rope_hooks import RopeHooks
from ordinate.probing.instrumentation.softmax_hooks import HookedSoftmax, SoftmaxMode

NAME = "ordinate"


@dataclass(eq=False)
class InstrumentedPass:
    """An instrumented forward pass.

    Args:
        layers: layer index of each attention module.
        watch: the hooks.
        visible: attention mask; None: that of the model.
        below: hooks on other parts of the model.
    """

    layers: dict[nn.Module, int]
    watch: Hooks
    visible: Visible | None = None
    below: "InstrumentedPass | None" = None

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        **given: Any,
    ) -> Any:
        """Compute attention by the eager function of the model, with hooks; names are those of its interface."""
        q, k, v, mask = query, key, value, attention_mask
        layer, hooks, plain = self.layers.get(module), self.watch.overridden, _plain_of(module)
        if layer is None:
            other = partial(plain, module) if self.below is None else partial(self.below.attend, module)
            return other(q, k, v, mask, **given)
        if "qkv" in hooks:
            q, k, v = self.watch.qkv(layer, q, k, v) or (q, k, v)
        if self.visible is not None:
            hidden = torch.zeros_like(self.visible, dtype=q.dtype)
            mask = hidden.masked_fill(~self.visible, torch.finfo(q.dtype).min)[:, None]
        if not hooks & {"attention_scores", "attention_pattern", "head_output", "attention"}:
            return plain(module, q, k, v, mask, **given)
        softmax = HookedSoftmax(self.watch, layer, k.shape[2])
        with SoftmaxMode(softmax):
            out, weights = plain(module, q, k, v, mask, **given)
        if "head_output" in hooks:
            # the interface returns (batch, tokens, heads, head width)
            new = self.watch.head_output(layer, out.transpose(1, 2))
            out = out if new is None else new.to(out.dtype).transpose(1, 2).contiguous()
        if "attention" in hooks and softmax.seen is not None:
            self.watch.attention(layer, AttentionRecord(q, k, v, *softmax.seen, out.transpose(1, 2)))
        return out, weights


_SESSION: ContextVar[InstrumentedPass | None] = ContextVar("session", default=None)


class AttentionInterfaceModel(HFModel):
    """Base of the adapters of transformers models whose attention goes through `AttentionInterface`.

    A function of our own is registered there, with the eager mask. It calls `eager_attention_forward` of the model's
    file, so that soft-capping, attention sinks, biases and windows are those of the model.
    """

    @classmethod
    def unsupported_reason(cls, model: Any) -> str | None:
        library = sys.modules.get("transformers")
        if library is None or not isinstance(model, library.PreTrainedModel):
            return "it is not a transformers model"
        if not model._can_set_attn_implementation():
            return "it does not use AttentionInterface"
        return None

    def find_attention(self, run: Run) -> list[nn.Module]:
        found: list[nn.Module] = []
        with self._watched(_Asked(found)):
            run()
        return list(dict.fromkeys(found))

    def attention_hooks(self, inputs: Inputs, watch: Hooks) -> Iterator[Change]:
        layers = {module: layer for layer, module in enumerate(self.attentions)}
        yield self._watched(InstrumentedPass(layers, watch, inputs.mask))
        # no family rotates the queries and keys of cross-attention
        if "qk_before_rope" in watch.overridden and self.kind != "cross-attention":
            yield from RopeHooks(watch).follow(self.attentions)

    def unfused_attention(self) -> Change:
        return _implementation(self.model, "eager")

    @contextmanager
    def _watched(self, session: InstrumentedPass) -> Iterator[None]:
        _register()
        session.below = _SESSION.get()
        token = _SESSION.set(session)
        try:
            with _implementation(self.model, NAME):
                yield
        finally:
            _SESSION.reset(token)


class _Asked(InstrumentedPass):
    """Record the modules that call attention."""

    def __init__(self, found: list[nn.Module]) -> None:
        super().__init__({}, Hooks())
        self.found = found

    def attend(self, module: nn.Module, *given: Any, **named: Any) -> Any:
        self.found.append(module)
        return super().attend(module, *given, **named)


def _plain_of(module: nn.Module) -> Any:
    plain = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if plain is None:
        raise NotApplicable(
            f"{type(module).__name__} has no eager attention: its scores and pattern cannot be accessed"
        )
    return plain


def _attention(module: nn.Module, *given: Any, **named: Any) -> Any:
    session = _SESSION.get()
    return _plain_of(module)(module, *given, **named) if session is None else session.attend(module, *given, **named)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(NAME, _attention)
    # a name without a registered mask function would get no mask, not even the causal one
    AttentionMaskInterface.register(NAME, eager_mask)


@contextmanager
def _implementation(model: Any, name: str) -> Iterator[None]:
    """Context manager: switch the attention implementation of a model."""
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "_can_set_attn_implementation")}
    before = [(config, config._attn_implementation_internal) for config in configs.values()]
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        for config, old in before:
            config._attn_implementation_internal = old

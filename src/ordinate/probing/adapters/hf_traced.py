"""Adapter of transformers models with attention in torch operations of their own."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.core.shapes import Visible
from ordinate.probing._adapter import ATTENTION_HOOKS, Hooks, Inputs
from ordinate.probing.instrumentation.black_box_model import Change, Run
from ordinate.probing.instrumentation.hf_model import HFModel
from ordinate.probing.instrumentation.op_tracing import AttentionSearch, TracingMode
from ordinate.probing.instrumentation.patching import patched_attribute
from ordinate.probing.instrumentation.rope_hooks import RopeHooks


class HFTraced(HFModel):
    """Adapter of transformers models that do not use `AttentionInterface`, such as Bloom, GPT-J or DeBERTa.

    Their operations are intercepted: the softmax, the matrix product before it and the one after it.
    """

    priority = 2

    @classmethod
    def unsupported_reason(cls, model: Any) -> str | None:
        library = sys.modules.get("transformers")
        there = library is not None and isinstance(model, library.PreTrainedModel)
        return None if there else "it is not a transformers model"

    def find_attention(self, run: Run) -> list[nn.Module]:
        search = AttentionSearch()
        with self.unfused_attention(), search.within(self.model):
            run()
        return search.found

    def attention_hooks(self, inputs: Inputs, watch: Hooks) -> Iterator[Change]:
        yield self.unfused_attention()
        if "qk_before_rope" in watch.overridden:
            yield from RopeHooks(watch).follow(self.attentions)
        if watch.overridden & ATTENTION_HOOKS:
            tracing = TracingMode()
            for layer, attention in enumerate(self.attentions):
                yield tracing.follow(attention, layer, watch)
            yield tracing
        if inputs.mask is not None:
            yield from self._masks(inputs.mask)

    @contextmanager
    def unfused_attention(self) -> Iterator[None]:
        # of several implementations, the one in torch operations
        with patched_attribute(self.model.config, "_attn_implementation_internal", "eager"):
            yield

    @property
    def _space(self) -> Any:
        return sys.modules[type(self.model).__module__]

    def _masks(self, visible: Visible) -> Iterator[Change]:
        """Replace the masks that a model makes."""
        hidden = ~visible[:, None]
        if hasattr(self._space, "create_causal_mask"):
            yield patched_attribute(
                self._space, "create_causal_mask", partial(_masked, self._space.create_causal_mask, hidden)
            )
        for module in self.model.modules():
            if hasattr(module, "get_attention_mask"):
                yield patched_attribute(module, "get_attention_mask", lambda _: ~hidden)
            own = module._buffers.get("bias")
            if own is not None and own.dtype == torch.bool:
                yield _buffer(module, "bias", torch.ones_like(own))


def _masked(original: Callable[..., Tensor | None], hidden: Tensor, *given: Any, **named: Any) -> Tensor:
    usual = original(*given, **named)
    if usual is not None and usual.dtype == torch.bool:
        # the last token is masked for the first one, which shows whether True means masked or visible
        return hidden if bool(usual[0, 0, 0, -1]) else ~hidden
    kind = torch.float32 if usual is None else usual.dtype
    return torch.zeros_like(hidden, dtype=kind).masked_fill(hidden, torch.finfo(kind).min)


@contextmanager
def _buffer(owner: nn.Module, name: str, value: Tensor) -> Iterator[None]:
    before = owner._buffers[name]
    owner._buffers[name] = value
    try:
        yield
    finally:
        owner._buffers[name] = before

"""Models of transformers that write their attention out."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.anatomy.published import Published
from ordinate.anatomy.readable import Change, Run
from ordinate.anatomy.replaced import replaced
from ordinate.anatomy.rotation import Rotations
from ordinate.anatomy.tracing import Search, Tracing
from ordinate.shapes import Visible
from ordinate.subject import ATTENTION, Inputs, Watch


class Traced(Published):
    """A model of transformers that computes its attention by operations of its own, such as Bloom, GPT-J or DeBERTa.

    The operations are caught on their way: the softmax, the product before it and the one after it.
    """

    order = 2

    @classmethod
    def refuses(cls, model: Any) -> str | None:
        """Why it is no model of transformers."""
        library = sys.modules.get("transformers")
        there = library is not None and isinstance(model, library.PreTrainedModel)
        return None if there else "it is no model of transformers"

    def find_attention(self, run: Run) -> list[nn.Module]:
        """The modules around each softmax."""
        search = Search()
        with self.plain(), search.within(self.model):
            run()
        return search.found

    def attend(self, inputs: Inputs, watch: Watch) -> Iterator[Change]:
        """Operations caught on their way, and masks replaced."""
        yield self.plain()
        if "raw" in watch.hooks:
            yield from Rotations(watch).follow(self.attentions)
        if watch.hooks & ATTENTION:
            tracing = Tracing()
            for layer, attention in enumerate(self.attentions):
                yield tracing.follow(attention, layer, watch)
            yield tracing
        if inputs.visible is not None:
            yield from self._masks(inputs.visible)

    @contextmanager
    def plain(self) -> Iterator[None]:
        """The model's own attention, where it has several, written out."""
        with replaced(self.model.config, "_attn_implementation_internal", "eager"):
            yield

    @property
    def _space(self) -> Any:
        return sys.modules[type(self.model).__module__]

    def _masks(self, visible: Visible) -> Iterator[Change]:
        """Other masks, where the model makes its own."""
        hidden = ~visible[:, None]
        if hasattr(self._space, "create_causal_mask"):
            yield replaced(
                self._space, "create_causal_mask", partial(_masked, self._space.create_causal_mask, hidden)
            )
        for module in self.model.modules():
            if hasattr(module, "get_attention_mask"):
                yield replaced(module, "get_attention_mask", lambda _: ~hidden)
            own = module._buffers.get("bias")
            if own is not None and own.dtype == torch.bool:
                yield _buffer(module, "bias", torch.ones_like(own))


def _masked(original: Callable[..., Tensor | None], hidden: Tensor, *given: Any, **named: Any) -> Tensor:
    usual = original(*given, **named)
    if usual is not None and usual.dtype == torch.bool:
        # the last token is hidden from the first: so is True what is hidden, or what is seen
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

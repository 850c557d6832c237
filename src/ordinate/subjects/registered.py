"""Models of transformers that look up how attention is computed in its register."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.anatomy.published import Published
from ordinate.anatomy.readable import Change, Run
from ordinate.anatomy.rotation import Rotations
from ordinate.anatomy.softmax import Softmax, Softmaxes
from ordinate.shapes import Visible
from ordinate.subject import Attended, Inputs, Unfit, Watch

NAME = "ordinate"


@dataclass(eq=False)
class Session:
    """A forward pass that is watched.

    Args:
        layers: the number of the layer that each module computes attention of.
        watch: what looks on.
        visible: who sees whom; None: as the model does.
    """

    layers: dict[nn.Module, int]
    watch: Watch
    visible: Visible | None = None

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **given: Any) -> Any:
        """Attention as the model computes it, watched."""
        layer, hooks, plain = self.layers.get(module), self.watch.hooks, _plain_of(module)
        if layer is None:
            return plain(module, q, k, v, mask, **given)
        if "marked" in hooks:
            q, k, v = self.watch.marked(layer, q, k, v) or (q, k, v)
        if self.visible is not None:
            hidden = torch.zeros_like(self.visible, dtype=q.dtype)
            mask = hidden.masked_fill(~self.visible, torch.finfo(q.dtype).min)[:, None]
        if not hooks & {"scores", "weights", "attended"}:
            return plain(module, q, k, v, mask, **given)
        softmax = Softmax(self.watch, layer, k.shape[2])
        with Softmaxes(softmax):
            out, weights = plain(module, q, k, v, mask, **given)
        if "attended" in hooks and softmax.seen is not None:
            self.watch.attended(layer, Attended(q, k, v, *softmax.seen, out.transpose(1, 2)))
        return out, weights


_SESSION: ContextVar[Session | None] = ContextVar("session", default=None)


class Registered(Published):
    """A model of transformers whose attention is looked up by name, as that of most families is.

    Our own function is put into the register, together with the mask that goes with it; it hands over to the plain
    function of the model's own file, so that caps, sinks, biases and windows are as they are there.
    """

    order = 1

    @classmethod
    def refuses(cls, model: Any) -> str | None:
        """Why its attention is not looked up."""
        library = sys.modules.get("transformers")
        if library is None or not isinstance(model, library.PreTrainedModel):
            return "it is no model of transformers"
        if not model._can_set_attn_implementation():
            return "its attention is not looked up in the register"
        return None

    def find_attention(self, run: Run) -> list[nn.Module]:
        """The modules that ask for our function."""
        found: list[nn.Module] = []
        with self._watched(_Asked(found)):
            run()
        return list(dict.fromkeys(found))

    def attend(self, inputs: Inputs, watch: Watch) -> Iterator[Change]:
        """Our function in the place of the model's, and a look at what is rotated."""
        layers = {module: layer for layer, module in enumerate(self.attentions)}
        yield self._watched(Session(layers, watch, inputs.visible))
        if "raw" in watch.hooks:
            yield from Rotations(watch).follow(self.attentions)

    def plain(self) -> Change:
        """The model's own plain function."""
        return _implementation(self.model, "eager")

    @contextmanager
    def _watched(self, session: Session) -> Iterator[None]:
        _register()
        token = _SESSION.set(session)
        try:
            with _implementation(self.model, NAME):
                yield
        finally:
            _SESSION.reset(token)


class _Asked(Session):
    """Notes who asks for attention."""

    def __init__(self, found: list[nn.Module]) -> None:
        super().__init__({}, Watch())
        self.found = found

    def attend(self, module: nn.Module, *given: Any, **named: Any) -> Any:
        self.found.append(module)
        return super().attend(module, *given, **named)


def _plain_of(module: nn.Module) -> Any:
    plain = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if plain is None:
        raise Unfit(
            f"{type(module).__name__} computes its attention in one piece only: nothing inside it can be seen"
        )
    return plain


def _attention(module: nn.Module, *given: Any, **named: Any) -> Any:
    session = _SESSION.get()
    return _plain_of(module)(module, *given, **named) if session is None else session.attend(module, *given, **named)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(NAME, _attention)
    # without a mask of its own, a model that reads from left to right would see all
    AttentionMaskInterface.register(NAME, eager_mask)


@contextmanager
def _implementation(model: Any, name: str) -> Iterator[None]:
    """Let a model compute attention in another way, for a while."""
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "_can_set_attn_implementation")}
    before = [(config, config._attn_implementation_internal) for config in configs.values()]
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        for config, old in before:
            config._attn_implementation_internal = old

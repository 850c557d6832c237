"""A static KV cache: its tensors keep shape and address, so that a decoding step can be captured in a CUDA graph."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Ids, Keys, Values
from ordinate.mixers._mixer import KVCache, MixerState
from ordinate.mixers._projections import AttentionMixer
from ordinate.models.block import Block
from ordinate.models.cache import Cache
from ordinate.models.decoder import Decoder
from ordinate.models.experts import Experts, NormedExperts

# steps before a capture: compilers and libraries prepare themselves, and backends prove themselves, in the first ones
WARM_UP_STEPS = 2
# layers that an error names
SHOWN_LAYERS = 3


@dataclass(frozen=True, eq=False)
class FixedGeometry(Geometry):
    """Geometry of one new token beside all keys of a fixed cache; those not written yet are hidden as padding.

    The index of the token in memory is a number on the device, which a window would have to know on the host.

    Raises:
        ValueError: a window.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _need_no_window(self.window, "got")


@dataclass(frozen=True, eq=False)
class FixedKVCache(KVCache):
    """KV cache with room for all tokens to come.

    Args:
        place: index at which the next key is written; one tensor for all layers.
    """

    place: Int[Tensor, "one"] = field(kw_only=True)

    def append(self, k: Keys, v: Values) -> "FixedKVCache":
        """Write the keys and values of one token in place, and return this cache."""
        self.k.index_copy_(2, self.place, k)
        self.v.index_copy_(2, self.place, v)
        return self


class FixedCache(Cache):
    """Static KV cache: its tensors keep shape and address, with room for `tokens` more tokens, one in each step.

    A model extends it like any other cache, by one token at a time; `advance` goes on to the next place.

    Args:
        cache: the cache to continue, which stays as it is; it has at least one token.
        tokens: number of tokens to come.

    Raises:
        ValueError: layers with other states than KV caches (recurrent ones), or a window.
    """

    def __init__(self, cache: Cache, tokens: int) -> None:
        past, new = cache.where, cache.next_geometry(1)
        if past is None:
            raise ValueError("a fixed cache continues another; got an empty one; read the prompt first")
        states, size = [_with_keys(state) for state in cache.states], len(cache) + tokens
        rows = states[0].batch_size
        self.place = past.k_pos.new_full((1,), len(cache), dtype=torch.long)
        self.q_pos = new.q_pos.expand(rows, -1, -1).clone()
        document = past.k_pos.new_zeros(1, 1, dtype=torch.long) if new.q_document is None else new.q_document
        self.q_document = document.expand(rows, 1).clone()
        held = self.q_document.new_zeros(1, len(cache)) if past.k_document is None else past.k_document
        self.k_pos = _longer(past.k_pos.expand(rows, -1, -1), 1, size, 0)
        self.k_document = _longer(held.expand(rows, -1), 1, size, PADDING)
        # a window is refused before anything is computed
        self.window = past.window
        fixed = [FixedKVCache(_longer(s.k, 2, size, 0), _longer(s.v, 2, size, 0), place=self.place) for s in states]
        super().__init__(list[MixerState | None](fixed), self._seen())

    def next_geometry(self, tokens: int, device: torch.device | str | None = None) -> Geometry:
        """Geometry of the next token, at the place that `advance` has reached."""
        need(tokens == 1, "a fixed cache takes one token at a time", f"got {tokens}", "use a Cache")
        # causal among themselves: the new token alone
        return Geometry(self.q_pos, self.q_pos, True, 0, None, self.q_document, self.q_document)

    def with_past(self, new: Geometry) -> Geometry:
        """Geometry of the new token beside all keys."""
        self.k_pos.index_copy_(1, self.place, new.q_pos)
        self.k_document.index_copy_(1, self.place, self.q_document)
        return self._seen()

    def advance(self, tokens: int = 1) -> None:
        """Go on to the next place; a negative number goes back, and hides what was written since."""
        self.place += tokens
        self.q_pos += tokens
        if tokens < 0:
            written = torch.arange(self.k_document.shape[1], device=self.place.device) < self.place
            self.k_document.masked_fill_(~written, PADDING)

    def _seen(self) -> FixedGeometry:
        last = self.k_pos.shape[1] - 1
        return FixedGeometry(self.q_pos, self.k_pos, True, last, self.window, self.q_document, self.k_document)


def check_fixed_size(model: Decoder, prefix: Cache | None = None) -> None:
    """Raise unless the decoding steps of a model can have a fixed size.

    Args:
        model: decoder.
        prefix: cache to continue; None: an empty one.

    Raises:
        ValueError: layers with other states than plain KV caches, or with experts; a window of a layer or of the
            prefix.
    """
    found = []
    for layer, (block, window) in enumerate(zip(model.blocks, model.shape.layer_windows, strict=True)):
        mixers = cast(Block, block).mixers
        if len(mixers) > 1:
            found.append(f"layer {layer} has a second mixer")
        elif not mixers[0].supports_fixed_cache:
            found.append(f"layer {layer} has the mixer {type(mixers[0]).__name__}")
        elif window is not None:
            found.append(f"layer {layer} has a window of {window} tokens")
        elif not cast(AttentionMixer, mixers[0]).own_keys:
            found.append(f"layer {layer} has the keys of another layer")
        elif isinstance(block.feedforward, Experts | NormedExperts):
            found.append(f"layer {layer} has experts, whose numbers of tokens vary")
    need(
        not found,
        "a decoding step of fixed size needs layers without experts, with a plain KV cache and without a window",
        ", ".join([*found[:SHOWN_LAYERS], *(["..."] if len(found) > SHOWN_LAYERS else [])]),
        "generate without a CUDA graph, or use the mixer softmax",
    )
    window = None if prefix is None or prefix.where is None else prefix.where.window
    _need_no_window(window, "got a prefix with")


def _need_no_window(window: int | None, came: str) -> None:
    need(
        window is None,
        "a decoding step of fixed size needs attention without a window",
        f"{came} a window of {window} tokens",
        "use a Cache, or generate without a CUDA graph",
    )


class DecodingStep:
    """One decoding step of a model with a fixed cache: from the token of each row to the logits of the next.

    Args:
        model: decoder, in evaluation mode.
        cache: cache of the prompt.
        tokens: number of steps.

    Raises:
        ValueError: layers with other states than plain KV caches, or a window.
    """

    def __init__(self, model: Decoder, cache: Cache, tokens: int) -> None:
        check_fixed_size(model, cache)
        self.model, self.cache = model, FixedCache(cache, tokens)
        self.ids = self.cache.q_document.new_zeros(len(self.cache.q_document), 1)

    @torch.no_grad()
    def __call__(self) -> Float[Tensor, "b vocabulary"]:
        """Compute the logits after the tokens in `ids`, and go on to the next place."""
        logits = self.model.next_token_logits(self.ids, cache=self.cache)
        self.cache.advance()
        return logits

    def captured(self) -> Callable[[Ids], Float[Tensor, "b vocabulary"]]:
        """Capture the step in a CUDA graph; each call copies tokens into it, replays it and returns its logits.

        The logits of a call are overwritten by the next one.
        """
        # streams are of the current device, which may be another than that of the model
        with torch.cuda.device(self.ids.device):
            stream, usual = torch.cuda.Stream(), torch.cuda.current_stream()
            stream.wait_stream(usual)
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP_STEPS):
                    self()
                    self.cache.advance(-1)
            usual.wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # PyTorch's own stream for captures is of the device of the first one
            with torch.cuda.graph(graph, stream=stream):
                logits = self()

        def replay(ids: Ids) -> Float[Tensor, "b vocabulary"]:
            self.ids.copy_(ids)
            graph.replay()
            return logits

        return replay


def _with_keys(state: MixerState | None) -> KVCache:
    # other states, of subclasses too, have sizes that grow, or know places on the host
    if type(state) is not KVCache:
        raise ValueError(
            "a decoding step of fixed size needs layers with a plain KV cache; "
            f"got one with {type(state).__name__}; use a Cache, or the mixer softmax"
        )
    return state


def _longer(x: Tensor, axis: int, size: int, value: float) -> Tensor:
    """Copy a tensor into a longer one, filled up with this value."""
    shape = list(x.shape)
    shape[axis] = size
    made = x.new_full(shape, value)
    made.narrow(axis, 0, x.shape[axis]).copy_(x)
    return made

"""Attention-only transformer in float64, whose probe results are known analytically, for tests of probes."""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float, Real
from torch import Tensor
from torch.nn.functional import layer_norm

from ordinate.probing._adapter import (
    AttentionRecord,
    ForwardOutput,
    Hooks,
    Inputs,
    ModelAdapter,
    ModelInfo,
    NotApplicable,
    Projection,
)
from ordinate.probing._probe import ProbeData

MAX_LENGTH = 512


class AnalyticModel(ModelAdapter):
    """Attention-only transformer with random weights, implemented as a model adapter.

    Args:
        position: position encoding: none, learned position embeddings, or RoPE.
        causal: whether a causal mask is applied.
        layers: number of layers.
        heads: attention heads per layer.
        width: model width.
        vocabulary: vocabulary size.
        head: whether it has an output layer (unembedding) and returns logits.
        scale: standard deviation of the learned position embeddings; that of the token embeddings is 1.
        max_length: maximum sequence length [tokens].
        first_token: id of the first token of each sequence (BOS).
        seed: random seed of the weights.
    """

    def __init__(
        self, position: Literal["none", "learned", "rope"] = "none", *, causal: bool = True, layers: int = 2,
        width: int = 16, head: bool = True, scale: float = 1.0, seed: int = 0, **facts: Any
    ) -> None:  # fmt: skip
        draw = torch.Generator().manual_seed(seed)
        known: dict[str, Any] = {"heads": 2, "vocabulary": 50, "max_length": None} | facts
        kind: Literal["decoder", "encoder"] = "decoder" if causal else "encoder"
        known |= {"layers": layers, "width": width, "kv_heads": known["heads"]}
        self._facts = ModelInfo("plain", "plain", kind, position=position, dtype=torch.float64, **known)
        heads, each = known["heads"], width // known["heads"]

        def drawn(*shape: int, size: float = 1.0) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=draw) * size

        self.tokens, self.table = drawn(known["vocabulary"], width), drawn(MAX_LENGTH, width, size=scale)
        self.weights = [
            Projection(
                drawn(heads, width, each, size=width**-0.5),
                drawn(heads, width, each, size=width**-0.5),
                drawn(heads, width, each, size=width**-0.5),
                drawn(heads, each, width, size=width**-0.5),
                torch.ones(width, dtype=torch.float64),
            )
            for _ in range(layers)
        ]
        self.head = drawn(width, known["vocabulary"], size=width**-0.5) if head else None

    priority = 1_000_000

    @classmethod
    def unsupported_reason(cls, model: object) -> str | None:
        """Return a reason for every model: this adapter has its own weights and wraps no other model."""
        return "it does not wrap other models"

    @property
    def info(self) -> ModelInfo:
        """Properties of the model."""
        return self._facts

    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        """Return the token embeddings, drawn from N(0, 1)."""
        return self.tokens

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        """Return the learned position embeddings, drawn from N(0, scale^2)."""
        if self.info.position != "learned":
            raise NotApplicable("AnalyticModel has no position embeddings")
        return self.table[:length]

    def projection(self, layer: int) -> Projection:
        return self.weights[layer]

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        """Run a forward pass: pre-norm attention with residual connections, layer norms without parameters."""
        ids = inputs.ids
        x = inputs.embeddings if ids is None or inputs.embeddings is not None else self.tokens[ids]
        if x is None:
            raise NotApplicable("AnalyticModel takes token ids or embeddings")
        count, n, _ = x.shape
        pos = torch.arange(n).expand(count, n) if inputs.positions is None else inputs.positions
        if self.info.max_length is not None and int(pos.max()) >= self.info.max_length:
            raise NotApplicable(f"AnalyticModel supports positions below {self.info.max_length}")
        mask = torch.ones(1, n, n, dtype=torch.bool)
        mask = (mask.tril() if self.info.causal else mask) if inputs.mask is None else inputs.mask
        x, watch = (x + self.table[pos] if self.info.position == "learned" else x), watch or Hooks()
        for layer in range(self.info.layers):
            x = self._layer(layer, x, pos, mask, watch)
        x = _or_unchanged(watch.residual(self.info.layers, x), x)
        return ForwardOutput(x, None if self.head is None else layer_norm(x, x.shape[-1:]) @ self.head)

    def _layer(self, layer: int, x: Tensor, pos: Tensor, mask: Tensor, watch: Hooks) -> Tensor:
        own = self.weights[layer]
        x = _or_unchanged(watch.residual(layer, x), x)
        normed = layer_norm(x, x.shape[-1:])
        q, k, v = (torch.einsum("bnw,hwd->bhnd", normed, matrix) for matrix in (own.query, own.key, own.value))
        if self.info.position == "rope":
            q, k = (apply_rope(one, pos) for one in watch.qk_before_rope(layer, q, k) or (q, k))
        q, k, v = watch.qkv(layer, q, k, v) or (q, k, v)
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~mask[:, None], -math.inf)
        scores = _or_unchanged(watch.attention_scores(layer, scores), scores)
        weights = scores.softmax(-1)
        weights = _or_unchanged(watch.attention_pattern(layer, weights), weights)
        out = weights @ v
        out = _or_unchanged(watch.head_output(layer, out), out)
        watch.attention(layer, AttentionRecord(q, k, v, scores, weights, out))
        branch = torch.einsum("bhnd,hdw->bnw", out, own.out)
        return x + _or_unchanged(watch.attention_output(layer, branch), branch)


def apply_rope(x: Float[Tensor, "b h n d"], pos: Real[Tensor, "b n"]) -> Float[Tensor, "b h n d"]:
    """Apply RoPE in interleaved layout: channels 2m and 2m + 1 form a pair."""
    rates = 10_000.0 ** (-torch.arange(0, x.shape[-1], 2, dtype=torch.float64) / x.shape[-1])
    angle = pos[:, None, :, None] * rates
    one, two = x[..., ::2], x[..., 1::2]
    turned = [one * angle.cos() - two * angle.sin(), one * angle.sin() + two * angle.cos()]
    return torch.stack(turned, -1).flatten(-2)


def random_sequences(count: int = 12, length: int = 24, vocabulary: int = 50, seed: int = 0) -> ProbeData:
    """Return sequences of independent random tokens: shuffling them does not change their distribution."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(vocabulary, (count, length), generator=draw)
    return ProbeData(ids, None, "random tokens", natural=False)


def _or_unchanged(changed: Tensor | None, x: Tensor) -> Tensor:
    return x if changed is None else changed

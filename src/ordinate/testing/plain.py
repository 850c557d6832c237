"""A subject of a few lines for testing probes: attention in float64, with answers that are known beforehand."""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float, Real
from torch import Tensor
from torch.nn.functional import layer_norm

from ordinate.probe import Material
from ordinate.subject import Attended, Facts, Inputs, Projection, Reading, Subject, Unfit, Watch

LONGEST = 512


class Plain(Subject):
    """Layers of attention and nothing else, with weights drawn at random.

    Args:
        position: what tells it where tokens stand.
        causal: whether no token sees those after it.
        layers: how many layers.
        heads: heads of each.
        width: columns.
        vocabulary: different tokens.
        head: whether it predicts tokens.
        scale: size of the numbers of learned positions, beside those of tokens, which are 1.
        max_length: longest input [tokens].
        first_token: the id that texts begin with.
        seed: of the weights.
    """

    def __init__(
        self, position: Literal["none", "learned", "rope"] = "none", *, causal: bool = True, layers: int = 2,
        width: int = 16, head: bool = True, scale: float = 1.0, seed: int = 0, **facts: Any
    ) -> None:  # fmt: skip
        draw = torch.Generator().manual_seed(seed)
        known: dict[str, Any] = {"heads": 2, "vocabulary": 50, "max_length": None} | facts
        kind: Literal["decoder", "encoder"] = "decoder" if causal else "encoder"
        known |= {"layers": layers, "width": width, "kv_heads": known["heads"]}
        self._facts = Facts("plain", "plain", kind, position=position, dtype=torch.float64, **known)
        heads, each = known["heads"], width // known["heads"]

        def drawn(*shape: int, size: float = 1.0) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=draw) * size

        self.tokens, self.table = drawn(known["vocabulary"], width), drawn(LONGEST, width, size=scale)
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

    order = 1_000_000

    @classmethod
    def refuses(cls, model: object) -> str | None:
        """It is made of nothing but sizes."""
        return "it looks into no other model"

    @property
    def facts(self) -> Facts:
        """What is known of it."""
        return self._facts

    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        """Random vectors of size 1 in each column."""
        return self.tokens

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        """Random vectors, where positions are learned."""
        if self.facts.position != "learned":
            raise Unfit("plain adds nothing to its tokens")
        return self.table[:length]

    def projection(self, layer: int) -> Projection:
        """The matrices of a layer."""
        return self.weights[layer]

    def read(self, inputs: Inputs, watch: Watch | None = None) -> Reading:
        """A forward pass: a norm without parameters, attention, and the residual stream."""
        ids = inputs.ids
        x = inputs.vectors if ids is None or inputs.vectors is not None else self.tokens[ids]
        if x is None:
            raise Unfit("plain reads tokens")
        count, n, _ = x.shape
        pos = torch.arange(n).expand(count, n) if inputs.positions is None else inputs.positions
        if self.facts.max_length is not None and int(pos.max()) >= self.facts.max_length:
            raise Unfit(f"positions of plain end at {self.facts.max_length}")
        seen = torch.ones(1, n, n, dtype=torch.bool)
        seen = (seen.tril() if self.facts.causal else seen) if inputs.visible is None else inputs.visible
        x, watch = (x + self.table[pos] if self.facts.position == "learned" else x), watch or Watch()
        for layer in range(self.facts.layers):
            x = self._layer(layer, x, pos, seen, watch)
        x = _told(watch.stream(self.facts.layers, x), x)
        return Reading(x, None if self.head is None else layer_norm(x, x.shape[-1:]) @ self.head)

    def _layer(self, layer: int, x: Tensor, pos: Tensor, seen: Tensor, watch: Watch) -> Tensor:
        own = self.weights[layer]
        x = _told(watch.stream(layer, x), x)
        normed = layer_norm(x, x.shape[-1:])
        q, k, v = (torch.einsum("bnw,hwd->bhnd", normed, matrix) for matrix in (own.query, own.key, own.value))
        if self.facts.position == "rope":
            q, k = (rotated(one, pos) for one in watch.raw(layer, q, k) or (q, k))
        q, k, v = watch.marked(layer, q, k, v) or (q, k, v)
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~seen[:, None], -math.inf)
        scores = _told(watch.scores(layer, scores), scores)
        weights = scores.softmax(-1)
        weights = _told(watch.weights(layer, weights), weights)
        out = weights @ v
        watch.attended(layer, Attended(q, k, v, scores, weights, out))
        branch = torch.einsum("bhnd,hdw->bnw", out, own.out)
        return x + _told(watch.branch(layer, branch), branch)


def rotated(x: Float[Tensor, "b h n d"], pos: Real[Tensor, "b n"]) -> Float[Tensor, "b h n d"]:
    """Neighbouring channels turned by the position, as rope does."""
    rates = 10_000.0 ** (-torch.arange(0, x.shape[-1], 2, dtype=torch.float64) / x.shape[-1])
    angle = pos[:, None, :, None] * rates
    one, two = x[..., ::2], x[..., 1::2]
    turned = [one * angle.cos() - two * angle.sin(), one * angle.sin() + two * angle.cos()]
    return torch.stack(turned, -1).flatten(-2)


def texts(count: int = 12, length: int = 24, vocabulary: int = 50, seed: int = 0) -> Material:
    """Random tokens: texts without any order to lose."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(vocabulary, (count, length), generator=draw)
    return Material(ids, None, "random tokens", natural=False)


def _told(changed: Tensor | None, x: Tensor) -> Tensor:
    return x if changed is None else changed

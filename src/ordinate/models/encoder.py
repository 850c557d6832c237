"""A model that reads a text from both sides, as BERT does."""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from huggingface_hub import PyTorchModelHubMixin
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.batch import Batch
from ordinate.checks import need, need_known
from ordinate.geometry import PADDING, Geometry
from ordinate.models.block import Block
from ordinate.models.feedforward import BENDS, Bend
from ordinate.models.shape import Shape
from ordinate.models.trunk import SafetensorsOnly, Trunk
from ordinate.shapes import Ids, Logits, Tokens

Head = Literal["masked", "pooler", "none"]
HEADS: tuple[Head, ...] = ("masked", "pooler", "none")


@dataclass(frozen=True)
class EncoderShape(Shape):
    """The sizes and choices that make an encoder: those of a `Shape`, and these.

    Args:
        kinds: different kinds of tokens, such as the first and the second sentence; 0: they are not told apart.
        top: what stands on it: `masked` says the tokens that were masked, `pooler` makes one vector for a text of its
            first token; `none`.
        top_bend: how the masked head bends its numbers.
        top_bias: whether it adds numbers before it does; numbers for each token it adds in any case.
    """

    kinds: int = 0
    top: Head = "masked"
    top_bend: Bend = "gelu"
    top_bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        need_known("top", self.top, HEADS)
        need_known("top_bend", self.top_bend, BENDS)
        need(self.kinds >= 0, "kinds must not be negative", f"got {self.kinds}", "give how many there are")


class Masked(nn.Module):
    """Says what stands at each place: logits = table norm(f(W x + b)) + c, with the table that tokens enter by.

    Source: Devlin et al. 2019, BERT, section 3.1, https://arxiv.org/abs/1810.04805, and its code.
    """

    def __init__(self, shape: EncoderShape, columns: int) -> None:
        super().__init__()
        # of a scheme that claims columns of the model, the table lacks as many
        self.transform = nn.Linear(shape.width, columns, bias=shape.top_bias)
        self.bend, self.norm = BENDS[shape.top_bend], shape.make_norm(columns)
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))

    def forward(self, x: Tokens, table: Float[Tensor, "vocabulary width"]) -> Logits:
        """The logits of each token at each place."""
        # in mixed precision a product is narrower than the norm's weights
        return nn.functional.linear(self.norm(self.bend(self.transform(x)).to(x.dtype)), table, self.bias)


class Encoder(Trunk, SafetensorsOnly, PyTorchModelHubMixin):
    """A reader: each token becomes a vector that knows the whole text.

        x = norm(table[ids] + kinds[..], marked by the scheme);  layers of Block, each token seeing all

    `save_pretrained(folder)` writes model.safetensors and config.json, `Encoder.from_pretrained(folder)` reads them.

    Args:
        shape: its sizes and choices.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that the mixer does not honour, or a
            mixer that reads from left to right only.
    Source: Devlin et al. 2019, BERT, https://arxiv.org/abs/1810.04805.
    """

    def __init__(self, shape: EncoderShape) -> None:
        if not isinstance(shape, EncoderShape):
            came = type(shape).__name__
            raise TypeError(f"an encoder is made by an EncoderShape; got {came}; give EncoderShape(...)")
        seed = int(torch.randint(2**62, (), device="cpu"))
        super().__init__(shape)
        for block in self.blocks:
            cast(Block, block).mixer.check_bidirectional()
        self.kinds = nn.Embedding(shape.kinds, self.tokens.embedding_dim) if shape.kinds else None
        self.masked = Masked(shape, self.tokens.embedding_dim) if shape.top == "masked" else None
        self.pooler = nn.Linear(shape.width, shape.width) if shape.top == "pooler" else None
        self.initialise(seed)

    def forward(self, ids: Ids, where: Geometry | None = None, kinds: Ids | None = None) -> Tokens:
        """A vector for each token; 0 at padding.

        Args:
            ids: tokens.
            where: where they stand: `Geometry.padded(real, causal=False)` for texts of several lengths; None: all
                real.
            kinds: the kind of each token; None: all of kind 0.
        """
        self.check_ids(ids)
        where = Geometry.full(ids.shape[1], device=ids.device) if where is None else where
        self.check_where(ids, where)
        need(
            not where.hides_future,
            "an encoder reads from both sides",
            "got a causal geometry",
            "build it by Geometry.full, or with causal=False",
        )
        placed, x = self.place(where), self.tokens(ids)
        x, _ = self.run(placed[0].embed(self._with_kinds(x, ids, kinds)), placed, None)
        real = real_tokens(where)
        return x if real is None else x.masked_fill(~real[..., None], 0.0)

    def predict(self, x: Tokens) -> Logits:
        """How likely each token is at each place, from the vectors that `forward` gave."""
        need(self.masked is not None, "the model needs a masked head", "it has none", "build it with top='masked'")
        return cast(Masked, self.masked)(x, self.tokens.weight)

    def answer(self, batch: Batch) -> Logits:
        """The logits of each place of a batch, by the masked head."""
        where = None if batch.real is None else Geometry.padded(batch.real, causal=False)
        return self.predict(self(batch.inputs, where))

    def pool(self, x: Tokens) -> Float[Tensor, "b width"]:
        """One vector for each text, of its first token: tanh(W x_0 + b)."""
        need(self.pooler is not None, "the model needs a pooler", "it has none", "build it with top='pooler'")
        return torch.tanh(cast(nn.Linear, self.pooler)(x[:, 0]))

    def _with_kinds(self, x: Tokens, ids: Ids, kinds: Ids | None) -> Tokens:
        if self.kinds is None:
            need(kinds is None, "this model tells no kinds of tokens apart", "got kinds", "leave them out")
            return x
        kinds = torch.zeros_like(ids) if kinds is None else kinds
        need(kinds.shape == ids.shape, "each token has a kind", f"got {tuple(kinds.shape)}", "give one for each")
        return x + self.kinds(kinds)


def real_tokens(where: Geometry) -> Bool[Tensor, "#b n"] | None:
    """Which tokens are real; None: all."""
    return None if where.q_document is None else where.q_document != PADDING


def mean_of_tokens(x: Tokens, real: Bool[Tensor, "#b n"] | None = None) -> Float[Tensor, "b width"]:
    """The mean of each text's real tokens: the vector of a sentence.

    Source: Reimers and Gurevych 2019, Sentence-BERT, section 3, https://arxiv.org/abs/1908.10084.
    """
    there = x.new_ones(x.shape[:2]) if real is None else real.to(x.dtype).expand(x.shape[:2])
    return (x * there[..., None]).sum(1) / there.sum(1, keepdim=True).clamp(min=1)

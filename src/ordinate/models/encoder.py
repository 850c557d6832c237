"""Bidirectional encoder (BERT), with a head for masked tokens, classes or answers, a pooler, or none."""

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_known
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Ids, Logits, Tokens
from ordinate.data.batch import Batch
from ordinate.models.activation import ACTIVATIONS, Activation
from ordinate.models.backbone import Backbone
from ordinate.models.block import Block
from ordinate.models.saved_model import SavedModel
from ordinate.models.shape import Shape
from ordinate.models.text_head import (
    CLASSIFIERS,
    ENCODER_HEADS,
    POOLS,
    READERS,
    EncoderHead,
    Pool,
    check_labels,
    class_count,
    mean_pool,
    need_head,
    span_logits,
    text_mask,
    token_mask,
)


@dataclass(frozen=True)
class EncoderShape(Shape):
    """Hyperparameters of an encoder: those of `Shape`, and these.

    Args:
        token_types: number of token types (segments, such as first and second sentence); 0: no token type embeddings.
        head: `masked` predicts masked tokens; `pooler` computes a vector of the sequence, `classes` the class of the
            sequence from that vector, `token_classes` the class of each token, `spans` the first and the last token
            of an answer; `none`.
        head_activation: activation function of the masked head, and of `head_transform`.
        head_bias: whether the transform of the masked head, or `head_transform`, has a bias; logits always have one.
        head_transform: whether a classifier reads norm(f(W x + b)), as the masked head does (ModernBERT), in place of
            the pooler or of the hidden states.
        pool: which vector of a sequence is pooled or classified: that of its `first` token, or the `mean`.
        pool_activation: activation function of the pooler.
        padding: padding token, where it is not the usual one and a published family depends on it (RoBERTa). Masks
            come from the geometry.
    """

    token_types: int = 0
    head: EncoderHead = "masked"
    head_activation: Activation = "gelu"
    head_bias: bool = True
    head_transform: bool = False
    pool: Pool = "first"
    pool_activation: Activation = "tanh"

    def __post_init__(self) -> None:
        super().__post_init__()
        need_known("head_activation", self.head_activation, ACTIVATIONS)
        need_known("pool_activation", self.pool_activation, ACTIVATIONS)
        need(
            self.token_types >= 0,
            "token_types must not be negative",
            f"got {self.token_types}",
            "give the number of token types",
        )

    def _check_head(self) -> None:
        need_known("head", self.head, ENCODER_HEADS)
        check_labels(self.head, self.labels)
        need_known("pool", self.pool, POOLS)
        need(
            self.pool == "first" or self.head in ("pooler", "classes"),
            "pool has an effect only with head='pooler' or head='classes'",
            f"got pool={self.pool!r} with head={self.head!r}",
            "leave it out",
        )
        need(
            not self.head_transform or self.head in READERS,
            f"head_transform is an option of the heads {', '.join(READERS)}",
            f"got head={self.head!r}",
            "leave it out",
        )


class HeadTransform(nn.Module):
    """Transform of hidden states before the logits: norm(f(W x + b)).

    Source: Devlin et al. 2019, BERT, section 3.1, https://arxiv.org/abs/1810.04805, and its code.
    """

    def __init__(self, shape: EncoderShape, columns: int) -> None:
        super().__init__()
        self.transform = nn.Linear(shape.width, columns, bias=shape.head_bias)
        self.bend, self.norm = ACTIVATIONS[shape.head_activation], shape.make_norm(columns)

    def forward(self, x: Float[Tensor, "b *n width"]) -> Float[Tensor, "b *n columns"]:
        """Transform vectors of tokens or of sequences."""
        # under autocast the product is in a narrower type than the weights of the norm
        return self.norm(self.bend(self.transform(x)).to(x.dtype))


class MaskedTokenHead(HeadTransform):
    """Masked-language-model head with tied embeddings: logits = table norm(f(W x + b)) + c.

    Source: Devlin et al. 2019, BERT, section 3.1, https://arxiv.org/abs/1810.04805, and its code.
    """

    def __init__(self, shape: EncoderShape, columns: int) -> None:
        # a scheme that appends columns leaves the token table narrower than the model
        super().__init__(shape, columns)
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))

    def logits(self, x: Tokens, table: Float[Tensor, "vocabulary columns"]) -> Logits:
        """Logits over the vocabulary at each position."""
        return nn.functional.linear(self(x), table, self.bias)


class Encoder(Backbone, SavedModel):
    """Bidirectional encoder: a contextual vector for each token.

        x = norm(embedding_scale * table[ids] + kinds[token_types], with position embeddings);
        layers of Block with full attention

    `save_pretrained(folder)` writes model.safetensors and config.json, `Encoder.from_pretrained(folder)` reads them.

    Args:
        shape: hyperparameters.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that the mixer does not support, or a
            mixer without a bidirectional form.
    Source: Devlin et al. 2019, BERT, https://arxiv.org/abs/1810.04805.
    """

    shape_class = EncoderShape

    def __init__(self, shape: EncoderShape) -> None:
        if not isinstance(shape, EncoderShape):
            came = type(shape).__name__
            raise TypeError(f"Encoder needs an EncoderShape; got {came}; give EncoderShape(...)")
        seed = int(torch.randint(2**62, (), device="cpu"))
        super().__init__(shape)
        for block in self.blocks:
            cast(Block, block).mixer.check_bidirectional()
        self.kinds = nn.Embedding(shape.token_types, self.tokens.embedding_dim) if shape.token_types else None
        self.masked = MaskedTokenHead(shape, self.tokens.embedding_dim) if shape.head == "masked" else None
        self.bend_pooled, count = ACTIVATIONS[shape.pool_activation], class_count(shape.head, shape.labels)
        pools = shape.head in ("pooler", "classes") and not shape.head_transform
        self.pooler = nn.Linear(shape.width, shape.width) if pools else None
        self.head_transform = HeadTransform(shape, shape.width) if shape.head_transform else None
        self.classes = nn.Linear(shape.width, count) if count else None
        self.initialise(seed)

    def forward(self, ids: Ids, where: Geometry | None = None, token_types: Ids | None = None) -> Tokens:
        """Compute the final hidden state of each token; 0 at padding.

        Args:
            ids: token ids.
            where: geometry: `Geometry.padded(real, causal=False)` for padded batches; None: no padding.
            token_types: token type ids; None: all 0.
        """
        self.check_ids(ids)
        where = Geometry.full(ids.shape[1], device=ids.device) if where is None else where
        self.check_geometry(ids, where)
        need(
            not where.is_causal,
            "an encoder needs a bidirectional geometry",
            "got a causal one",
            "build it by Geometry.full, or with causal=False",
        )
        placed, x = self.bind_schemes(where), self.embed_tokens(ids)
        x, _ = self.run_layers(placed[0].embed(self._with_token_types(x, ids, token_types)), placed, None)
        real = token_mask(where)
        return x if real is None else x.masked_fill(~real[..., None], 0.0)

    def logits(self, x: Tokens) -> Logits:
        """Masked-language-model logits from the hidden states of `forward`."""
        need(self.masked is not None, "the model needs a masked head", "it has none", "build it with head='masked'")
        return cast(MaskedTokenHead, self.masked).logits(x, self.tokens.weight)

    def batch_logits(self, batch: Batch) -> Float[Tensor, "b *n classes"]:
        """Logits of a batch; their last axis is the one of the softmax."""
        where = None if batch.token_mask is None else Geometry.padded(batch.token_mask, causal=False)
        few = {"spans": self.span_logits, **dict.fromkeys(CLASSIFIERS, self.class_logits)}
        compute = few.get(self.shape.head, lambda ids, where: self.logits(self(ids, where)))
        return compute(batch.inputs, where)

    def pool(self, x: Tokens, where: Geometry | None = None) -> Float[Tensor, "b width"]:
        """Pooled vector of each sequence: f(W p(x) + b), p as `pool` of the shape says, f as `pool_activation`.

        Args:
            x: hidden states of `forward`.
            where: their geometry, for `pool='mean'`; None: no padding.
        """
        need(self.pooler is not None, "the model needs a pooler", "it has none", "build it with head='pooler'")
        return self.bend_pooled(cast(nn.Linear, self.pooler)(self._pooled(x, where)))

    def class_logits(
        self, ids: Ids, where: Geometry | None = None, token_types: Ids | None = None
    ) -> Float[Tensor, "b *tokens classes"]:
        """Class logits of each sequence, or of each token.

        Args:
            ids: token ids.
            where: geometry, as for `forward`, one sequence in each row; None: no padding.
            token_types: token type ids; None: all 0.
        """
        need_head("class logits", self.shape.head, *CLASSIFIERS)
        x = self(ids, where, token_types)
        if self.pooler is not None:
            return cast(nn.Linear, self.classes)(self.pool(x, where))
        return self._classified(self._pooled(x, where) if self.shape.head == "classes" else x)

    def span_logits(
        self, ids: Ids, where: Geometry | None = None, token_types: Ids | None = None
    ) -> Float[Tensor, "b two n"]:
        """Logits of the first and of the last token of an answer, each over the tokens; as `class_logits`."""
        need_head("span logits", self.shape.head, "spans")
        return span_logits(self._classified(self(ids, where, token_types)), text_mask(where))

    def _pooled(self, x: Tokens, where: Geometry | None) -> Float[Tensor, "b width"]:
        real = text_mask(where)
        return x[:, 0] if cast(EncoderShape, self.shape).pool == "first" else mean_pool(x, real)

    def _classified(self, x: Float[Tensor, "b *n width"]) -> Float[Tensor, "b *n classes"]:
        return cast(nn.Linear, self.classes)(x if self.head_transform is None else self.head_transform(x))

    def _with_token_types(self, x: Tokens, ids: Ids, token_types: Ids | None) -> Tokens:
        if self.kinds is None:
            need(token_types is None, "this model has no token types", "got token_types", "leave them out")
            return x
        token_types = torch.zeros_like(ids) if token_types is None else token_types
        need(
            token_types.shape == ids.shape,
            "token_types needs the shape of ids",
            f"got {tuple(token_types.shape)}",
            "give one per token",
        )
        return x + self.kinds(token_types)

"""Bidirectional encoder (BERT), with masked-language-model head, pooler or neither."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
from huggingface_hub import PyTorchModelHubMixin
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_known
from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Ids, Logits, Tokens
from ordinate.data.batch import Batch
from ordinate.models.backbone import Backbone, StrictSafetensors
from ordinate.models.block import Block
from ordinate.models.feedforward import ACTIVATIONS, Activation
from ordinate.models.shape import Shape

EncoderHead = Literal["masked", "pooler", "classes", "token_classes", "none"]
ENCODER_HEADS: tuple[EncoderHead, ...] = get_args(EncoderHead)
CLASSIFIERS: tuple[EncoderHead, ...] = ("classes", "token_classes")
PoolActivation = Literal["tanh", "gelu", "gelu_tanh", "relu", "silu"]
POOL_ACTIVATIONS: dict[PoolActivation, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, **ACTIVATIONS}


@dataclass(frozen=True)
class EncoderShape(Shape):
    """Hyperparameters of an encoder: those of `Shape`, and these.

    Args:
        token_types: number of token types (segments, such as first and second sentence); 0: no token type embeddings.
        head: `masked` predicts masked tokens; `pooler` computes a vector of the sequence from its first token,
            `classes` the class of the sequence from that vector, `token_classes` the class of each token; `none`.
        head_activation: activation function of the masked head.
        head_bias: whether the transform of the masked head has a bias; its logits always have one.
        pool_activation: activation function of the vector of the sequence.
        labels: class names of a classifier, in order.
        padding: padding token, where it is not the usual one and a published family depends on it (RoBERTa). Masks
            come from the geometry.
    """

    token_types: int = 0
    head: EncoderHead = "masked"
    head_activation: Activation = "gelu"
    head_bias: bool = True
    pool_activation: PoolActivation = "tanh"
    labels: tuple[str, ...] = ()
    padding: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        need(self.has_head, "has_head is an option of decoders", "got has_head=False", "give head='none'")
        need_known("head", self.head, ENCODER_HEADS)
        need_known("head_activation", self.head_activation, ACTIVATIONS)
        need_known("pool_activation", self.pool_activation, POOL_ACTIVATIONS)
        need(
            (self.head in CLASSIFIERS) == bool(self.labels),
            "labels names the classes of a classifier",
            f"got {len(self.labels)} labels with head={self.head!r}",
            "give one for each class to a classifier, and to others none",
        )
        need(
            self.token_types >= 0,
            "token_types must not be negative",
            f"got {self.token_types}",
            "give the number of token types",
        )


class MaskedTokenHead(nn.Module):
    """Masked-language-model head with tied embeddings: logits = table norm(f(W x + b)) + c.

    Source: Devlin et al. 2019, BERT, section 3.1, https://arxiv.org/abs/1810.04805, and its code.
    """

    def __init__(self, shape: EncoderShape, columns: int) -> None:
        super().__init__()
        # a scheme that appends columns leaves the token table narrower than the model
        self.transform = nn.Linear(shape.width, columns, bias=shape.head_bias)
        self.bend, self.norm = ACTIVATIONS[shape.head_activation], shape.make_norm(columns)
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))

    def forward(self, x: Tokens, table: Float[Tensor, "vocabulary columns"]) -> Logits:
        """Logits over the vocabulary at each position."""
        # under autocast the product is in a narrower type than the weights of the norm
        return nn.functional.linear(self.norm(self.bend(self.transform(x)).to(x.dtype)), table, self.bias)


class Encoder(Backbone, StrictSafetensors, PyTorchModelHubMixin):
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
        pools, classifies = shape.head in ("pooler", "classes"), shape.head in CLASSIFIERS
        self.bend_pooled = POOL_ACTIVATIONS[shape.pool_activation]
        self.pooler = nn.Linear(shape.width, shape.width) if pools else None
        self.classes = nn.Linear(shape.width, len(shape.labels)) if classifies else None
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
        return cast(MaskedTokenHead, self.masked)(x, self.tokens.weight)

    def batch_logits(self, batch: Batch) -> Logits:
        """Masked-language-model logits of a batch."""
        where = None if batch.token_mask is None else Geometry.padded(batch.token_mask, causal=False)
        return self.logits(self(batch.inputs, where))

    def pool(self, x: Tokens) -> Float[Tensor, "b width"]:
        """Pooled vector of each sequence, from its first token: f(W x_0 + b), f as `pool_activation` says."""
        need(self.pooler is not None, "the model needs a pooler", "it has none", "build it with head='pooler'")
        return self.bend_pooled(cast(nn.Linear, self.pooler)(x[:, 0]))

    def class_logits(self, x: Tokens) -> Float[Tensor, "b *tokens classes"]:
        """Class logits of each sequence, or of each token, from the hidden states of `forward`."""
        need(
            self.classes is not None,
            "the model needs a classifier",
            "it has none",
            "build it with head='classes' or head='token_classes'",
        )
        return cast(nn.Linear, self.classes)(x if self.pooler is None else self.pool(x))

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


def token_mask(where: Geometry) -> Bool[Tensor, "#b n"] | None:
    """Padding mask: True at real tokens; None: no padding."""
    return None if where.q_document is None else where.q_document != PADDING


def mean_pool(x: Tokens, real: Bool[Tensor, "#b n"] | None = None) -> Float[Tensor, "b width"]:
    """Mean pooling over the real tokens of each sequence: a sentence embedding.

    Source: Reimers and Gurevych 2019, Sentence-BERT, section 3, https://arxiv.org/abs/1908.10084.
    """
    there = x.new_ones(x.shape[:2]) if real is None else real.to(x.dtype).expand(x.shape[:2])
    return (x * there[..., None]).sum(1) / there.sum(1, keepdim=True).clamp(min=1)

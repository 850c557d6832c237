"""Bidirectional encoder (BERT), with a head for masked tokens, classes or answers, a pooler, or none."""

from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import Ids, Logits, Tokens
from ordinate.core.tensors import need_size
from ordinate.data.batch import Batch
from ordinate.models.backbone import Backbone
from ordinate.models.block import Block
from ordinate.models.counted_positions import without_counting
from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.head_transform import HeadTransform
from ordinate.models.saved_model import SavedModel
from ordinate.models.text_head import (
    CLASSIFIERS,
    class_count,
    mean_pool,
    need_head,
    span_logits,
    text_mask,
    token_mask,
)
from ordinate.models.token_dropout import with_token_dropout
from ordinate.ops.activation import ACTIVATIONS
from ordinate.ops.linear_layer import weight_and_bias
from ordinate.schemes._scheme import Placed


class MaskedTokenHead(HeadTransform):
    """Masked-language-model head: logits = table norm(f(W x + b)) + c, with the token table or one of its own.

    Source: Devlin et al. 2019, BERT, section 3.1, https://arxiv.org/abs/1810.04805, and its code.
    """

    def __init__(self, shape: EncoderShape, columns: int) -> None:
        # a scheme that appends columns leaves the token table narrower than the model
        super().__init__(shape, shape.width, columns, there=shape.masked_transform, normed=shape.head_norm)
        self.decoder = None if shape.tie_embeddings else nn.Linear(columns, shape.vocabulary, bias=False)
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary)) if shape.logit_bias else None

    def logits(self, x: Tokens, table: Float[Tensor, "vocabulary columns"]) -> Logits:
        """Logits over the vocabulary at each position."""
        own = table if self.decoder is None else weight_and_bias(self.decoder)[0]
        return nn.functional.linear(self(x), own, self.bias)


class Encoder(Backbone, SavedModel):
    """Bidirectional encoder: a contextual vector for each token.

        x = norm(P (embedding_scale * table[ids] + kinds[token_types], with position embeddings));
        layers of Block with full attention, or causal attention if the shape says so

    P is the identity, or a linear map from `embedding_width` columns, with `narrow_norm` of normalised ones.

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
            for mixer in cast(Block, block).mixers:
                (mixer.check_causal if shape.causal else mixer.check_bidirectional)()
        if "embed" in self.first_scheme.hooks:
            need_size("the token embeddings", self.first_scheme, "width", shape.table_width)
        self.padding_position = None if shape.padding is None else nn.Embedding(1, shape.table_width)
        wide, narrow = shape.width, shape.table_width
        self.narrow_norm = shape.make_norm(narrow) if shape.narrow_norm else nn.Identity()
        self.widen_embeddings = None if narrow == wide else nn.Linear(narrow, wide, bias=shape.narrow_norm)
        self.kinds = nn.Embedding(shape.token_types, self.tokens.embedding_dim) if shape.token_types else None
        self.masked = MaskedTokenHead(shape, self.tokens.embedding_dim) if shape.head == "masked" else None
        self.pool_activation, count = ACTIVATIONS[shape.pool_activation], class_count(shape.head, shape.labels)
        pools = shape.head in ("pooler", "classes") and not shape.head_transform
        self.pooler = nn.Linear(shape.width, shape.width) if pools else None
        columns, normed = shape.width, shape.head_norm
        self.head_transform = HeadTransform(shape, columns, columns, normed=normed) if shape.head_transform else None
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
        causal = cast(EncoderShape, self.shape).causal
        need(
            causal or not where.is_causal,
            "an encoder needs a bidirectional geometry",
            "got a causal one",
            "build it by Geometry.full, or with causal=False",
        )
        left_out = None if self.shape.padding is None else ids == self.shape.padding
        places = where if left_out is None else without_counting(where, left_out)
        placed = self.bind_schemes(changed(places, is_causal=True) if causal else places)
        x = self._with_token_types(self._embed_unmasked(ids, where), ids, token_types)
        x = self._widened(self._embedded(x, placed[0], left_out))
        x, _ = self.run_layers(x, placed, None)
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

        With `pool='late'` it is the mean of f(W x + b).

        Args:
            x: hidden states of `forward`.
            where: their geometry, for `pool='mean'` and `pool='late'`; None: no padding.
        """
        need(self.pooler is not None, "the model needs a pooler", "it has none", "build it with head='pooler'")
        self.check_hidden_states(x)
        late = cast(EncoderShape, self.shape).pool == "late"
        made = self.pool_activation(cast(nn.Linear, self.pooler)(x if late else self._pooled(x, where)))
        return mean_pool(made, text_mask(where)) if late else made

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

    def _embed_unmasked(self, ids: Ids, where: Geometry) -> Float[Tensor, "b n _"]:
        """Token embeddings, without those of masked tokens if the shape says so."""
        mask, x = cast(EncoderShape, self.shape).mask_token, self.embed_tokens(ids)
        return x if mask is None else with_token_dropout(x, ids == mask, where)

    def _embedded(
        self, x: Float[Tensor, "b n _"], at: Placed, left_out: Bool[Tensor, "b n"] | None
    ) -> Float[Tensor, "b n _"]:
        """Add position embeddings, and to tokens that positions do not count the vector in place of one."""
        # other schemes may be built for the width of the model
        made = at.embed(x) if "embed" in at.scheme.hooks or self.widen_embeddings is None else x
        if self.padding_position is None or left_out is None:
            return made
        # columns that a scheme appends are the vector's alone
        blank = nn.functional.pad(x, (0, made.shape[2] - x.shape[2]))
        return torch.where(left_out[..., None], blank + self.padding_position.weight, made)

    def _widened(self, x: Float[Tensor, "b n columns"]) -> Tokens:
        """Take embeddings to the width of the model."""
        return x if self.widen_embeddings is None else self.widen_embeddings(self.narrow_norm(x))

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
            lambda: f"got {tuple(token_types.shape)}",
            "give one per token",
        )
        return x + self.kinds(token_types)

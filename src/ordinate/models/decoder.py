"""Decoder-only (causal) language model, or a classifier built on one."""

from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Ids, Logits, Tokens
from ordinate.data.batch import Batch
from ordinate.models.backbone import Backbone, scaled, soft_capped
from ordinate.models.block import Block
from ordinate.models.cache import Cache
from ordinate.models.head_transform import HeadTransform
from ordinate.models.saved_model import SavedModel
from ordinate.models.shape import Shape
from ordinate.models.text_head import CLASSIFIERS, class_count, last_token, need_head, span_logits, text_mask
from ordinate.ops.linear_layer import Linear, linear


class Decoder(Backbone, SavedModel):
    """Decoder-only (causal) language model: next-token logits at each position; or classes of texts or tokens.

        x = P (embedding_scale * table[ids]), with position embeddings if the scheme has any;  layers of Block;
        logits = logit_scale H(Q norm(x)) W, soft-capped if the shape says so

    P and Q are the identity, or linear maps from `embedding_width` columns and back; H is the identity, or
    `HeadTransform` with `head_transform` of the shape.

    With `head="classes"` the logits are those of the last token of each text (a reward model has one class), with
    `token_classes` those of each token, with `spans` those of the ends of an answer.

    `save_pretrained(folder)` writes model.safetensors and config.json, `Decoder.from_pretrained(folder)` reads them.

    Args:
        shape: hyperparameters.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that the mixer does not support.
    """

    def __init__(self, shape: Shape) -> None:
        seed = int(torch.randint(2**62, (), device="cpu"))
        super().__init__(shape)
        for block in self.blocks:
            for mixer in cast(Block, block).mixers:
                mixer.check_causal()
        own, biased = shape.head == "next_token" and not shape.tie_embeddings, "head" in shape.bias
        narrow, wide, appended = shape.table_width, shape.width, self.first_scheme.appended_width
        same = narrow == wide
        self.widen_embeddings = None if same else Linear(narrow - appended, wide - appended, bias=False)
        self.narrow_states = None if same else Linear(wide, narrow, bias=False)
        self.layer_inputs = shape.make_layer_inputs()
        self.head_transform = HeadTransform(shape, narrow, narrow) if shape.head_transform else nn.Identity()
        self.head = Linear(narrow, shape.vocabulary, bias=biased) if own else None
        tied = shape.tie_embeddings and biased
        self.head_bias = nn.Parameter(torch.zeros(shape.vocabulary)) if tied else None
        count = class_count(shape.head, shape.labels)
        self.classes = nn.Linear(narrow, count, bias=biased) if count else None
        self.initialise(seed)

    def forward(self, ids: Ids, where: Geometry | None = None, cache: Cache | None = None) -> Logits:
        """Compute next-token logits at each position.

        Args:
            ids: token ids; with a cache, only the new ones.
            where: geometry of these tokens; None: causal, continuing the cache.
            cache: cache of the previous tokens; it is extended by these tokens.
        """
        return self._logits(self.hidden_states(ids, where, cache))

    def next_token_logits(
        self, ids: Ids, where: Geometry | None = None, cache: Cache | None = None
    ) -> Float[Tensor, "b vocabulary"]:
        """Next-token logits of the last position only, as generation needs them."""
        return self._logits(self.hidden_states(ids, where, cache)[:, -1:])[:, 0]

    def hidden_states(self, ids: Ids, where: Geometry | None = None, cache: Cache | None = None) -> Tokens:
        """Final hidden state of each token, the input of the output head: of `embedding_width` columns if given.

        With `head_transform` they are not yet transformed.
        """
        self.check_ids(ids)
        if not isinstance(cache, Cache | None):
            raise TypeError(f"cache must be a Cache; got {type(cache).__name__}; start with Cache()")
        if where is None:
            where = (cache or Cache()).next_geometry(ids.shape[1], ids.device)
        self._check_places(ids, where, cache)
        seen = where if cache is None else cache.with_past(where)
        placed = self.bind_schemes(seen)
        before = None if cache is None else cache.states or [None] * len(self.blocks)
        x = self.embed_tokens(ids)
        given = None if self.layer_inputs is None else self.layer_inputs(ids, x).unbind(2)
        x, states = self.run_layers(placed[0].embed(x), placed, before, layer_inputs=given)
        if cache is not None:
            cache.states, cache.where = states, seen
        return x if self.narrow_states is None else self.narrow_states(x)

    def embed_tokens(self, ids: Ids) -> Tokens:
        """Token embeddings, without position embeddings."""
        x = super().embed_tokens(ids)
        return x if self.widen_embeddings is None else self.widen_embeddings(x)

    def class_logits(self, ids: Ids, where: Geometry | None = None) -> Float[Tensor, "b *tokens classes"]:
        """Class logits of each text, read from its last token, or of each token.

        Args:
            ids: token ids.
            where: geometry of these tokens, one text in each row; None: causal, no padding.
        """
        need_head("class logits", self.shape.head, *CLASSIFIERS)
        x = self.hidden_states(ids, where)
        if self.shape.head == "classes":
            x = last_token(x, self._counted(ids, where))
        return self._classified(x)

    def span_logits(self, ids: Ids, where: Geometry | None = None) -> Float[Tensor, "b two n"]:
        """Logits of the first and of the last token of an answer, each over the tokens; as `class_logits`."""
        need_head("span logits", self.shape.head, "spans")
        return span_logits(self._classified(self.hidden_states(ids, where)), text_mask(where))

    def batch_logits(self, batch: Batch) -> Float[Tensor, "b *n classes"]:
        """Logits of a batch; their last axis is the one of the softmax."""
        where = None if batch.token_mask is None else Geometry.padded(batch.token_mask)
        few = {"spans": self.span_logits, **dict.fromkeys(CLASSIFIERS, self.class_logits)}
        return few.get(self.shape.head, self)(batch.inputs, where)

    def _counted(self, ids: Ids, where: Geometry | None) -> Bool[Tensor, "b n"] | None:
        """True at tokens of which the last one is classified: those that are not padding; None: all."""
        real, padding = text_mask(where), self.shape.padding
        if padding is None:
            return real
        return ids != padding if real is None else real & (ids != padding)

    def _classified(self, x: Float[Tensor, "b *n width"]) -> Float[Tensor, "b *n classes"]:
        return cast(nn.Linear, self.classes)(self.head_transform(x))

    def _logits(self, x: Tokens) -> Logits:
        need(
            self.shape.head == "next_token",
            "next-token logits need a decoder with head='next_token'",
            f"this one has head={self.shape.head!r}",
            "call class_logits, span_logits or hidden_states, or load a checkpoint with a language-model head",
        )
        x = scaled(self.head_transform(x), self.shape.logit_scale)
        # a scheme that appends columns leaves the token table narrower than the model
        narrow = x[..., : self.tokens.embedding_dim]
        logits = linear(narrow, self.tokens.weight, self.head_bias) if self.head is None else self.head(x)
        return soft_capped(logits, self.shape.logit_softcap)

    def _check_places(self, ids: Ids, where: Geometry, cache: Cache | None) -> None:
        self.check_geometry(ids, where)
        need(
            where.is_causal,
            "a decoder needs a causal geometry",
            "got a geometry that is not causal",
            "build it by Geometry.causal, or with causal=True",
        )
        cached = 0 if cache is None else len(cache.states)
        need(
            cached in (0, len(self.blocks)),
            "a cache must have one state for each layer",
            f"got {cached} for {len(self.blocks)} layers",
            "use the cache with the model that filled it",
        )

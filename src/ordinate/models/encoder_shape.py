"""Hyperparameters of an encoder."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ordinate.core.checks import need, need_known, need_whole
from ordinate.models.block import Block
from ordinate.models.convolution import ConvolvedBlock, TokenConvolution
from ordinate.models.shape import Shape
from ordinate.models.shape_checks import check_no_decoder_options
from ordinate.models.text_head import (
    ENCODER_HEADS,
    POOLS,
    READERS,
    EncoderHead,
    Pool,
    check_labels,
    check_transform_head,
)
from ordinate.ops.activation import ACTIVATIONS, Activation


@dataclass(frozen=True)
class EncoderShape(Shape):
    """Hyperparameters of an encoder: those of `Shape`, and these.

    Args:
        tie_embeddings: whether the logits of masked tokens have the weights of the token table.
        token_types: number of token types (segments, such as first and second sentence); 0: no token type embeddings.
        causal: whether tokens attend to themselves and earlier ones only (BERT as a decoder).
        convolution: tokens that a convolution beside the first layer reads (DeBERTa), an odd number; 0: none.
        convolution_groups: groups of columns that the convolution takes together, see `torch.nn.Conv1d`.
        convolution_activation: activation function of the convolution.
        head: `masked` predicts masked tokens; `pooler` computes a vector of the sequence, `classes` the class of the
            sequence from that vector, `token_classes` the class of each token, `spans` the first and the last token
            of an answer; `none`.
        head_activation: activation function of the masked head, and of `head_transform`; other heads keep it for a
            model made of them.
        head_bias: whether the transform of the masked head, or `head_transform`, has a bias; kept likewise.
        head_norm: whether it has a norm (that of ELECTRA's discriminator has none).
        head_transform: whether a classifier reads norm(f(W x + b)), as the masked head does (ModernBERT), in place of
            the pooler or of the hidden states.
        logit_bias: whether the logits of masked tokens have a bias; those of classes always have one.
        mask_token: token whose embedding is left out, and for which those of the others in its text are scaled (token
            dropout of ESM), see `with_token_dropout`; None: none.
        narrow_norm: whether token embeddings of `embedding_width` columns are normalised, with position embeddings,
            before they are taken to the width of the model, by a map with a bias (ELECTRA, the original RoFormer).
        masked_transform: whether the logits of masked tokens are those of transformed hidden states; otherwise those
            of hidden states themselves (EuroBERT).
        pool: which vector of a sequence is pooled or classified: that of its `first` token, or the `mean`; or the
            mean of what the pooler makes of each token (`late`).
        pool_activation: activation function of the pooler; kept likewise where there is none.
        padding: token that positions do not count where it stands in a text, and that has a vector of its own in
            place of a position embedding (RoBERTa); None: positions are those of the geometry, from which masks come
            in either case.

    Raises:
        ValueError: besides those of `Shape`, an option without effect, or sizes that do not fit.
    """

    token_types: int = 0
    causal: bool = False
    convolution: int = 0
    convolution_groups: int = 1
    convolution_activation: Activation = "tanh"
    head: EncoderHead = "masked"
    head_norm: bool = True
    logit_bias: bool = True
    mask_token: int | None = None
    masked_transform: bool = True
    narrow_norm: bool = False
    pool: Pool = "first"
    pool_activation: Activation = "tanh"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_no_decoder_options(self)
        for name in ("pool_activation", "convolution_activation"):
            need_known(name, getattr(self, name), ACTIVATIONS)
        need(
            self.token_types >= 0,
            "token_types must not be negative",
            f"got {self.token_types}",
            "give the number of token types",
        )
        self._check_convolution()
        if self.mask_token is not None:
            need_whole("mask_token", self.mask_token)
        need(
            not self.narrow_norm or self.table_width != self.width,
            "narrow_norm needs an embedding_width other than the width of the model",
            f"got embedding_width={self.embedding_width} and a width of {self.width}",
            "give it, or embedding_norm=True instead",
        )
        need(
            self.padding is None or 0 <= self.padding < self.vocabulary,
            f"padding is a token from 0 to {self.vocabulary - 1}",
            f"got {self.padding}",
            "give the one of the tokenizer",
        )

    def block_class(self, layer: int) -> Callable[..., Block]:
        """Return what makes a layer: the first one may have a convolution beside it."""
        if layer or not self.convolution:
            return super().block_class(layer)
        activation = ACTIVATIONS[self.convolution_activation]
        convolution = TokenConvolution(self.width, self.convolution, self.convolution_groups, activation)
        return partial(ConvolvedBlock, convolution=convolution)

    def _check_convolution(self) -> None:
        """Raise unless the convolution fits the model."""
        size, groups = self.convolution, self.convolution_groups
        must = "convolution is an odd number of tokens, each with as many before as after it; or 0"
        need(size == 0 or (size > 0 and size % 2 == 1), must, f"got {size}", "3 is usual")
        post = self.norm_position == "post" and not self.causal
        came = f"got norm_position={self.norm_position!r}, causal={self.causal}"
        need(not size or post, "a convolution needs post-norm layers that see both sides", came, "leave it out")
        must = "convolution_groups divides the width, and has an effect with a convolution only"
        fits = groups > 0 and self.width % groups == 0 and (groups == 1 or size > 0)
        need(fits, must, f"got {groups} for a width of {self.width}, convolution={size}", "1 is usual")
        must, came = "convolution_activation has an effect with a convolution only", "got convolution=0"
        need(size > 0 or self.convolution_activation == "tanh", must, came, "leave it out, or give a convolution")

    def _check_head(self) -> None:
        need_known("head", self.head, ENCODER_HEADS)
        check_labels(self.head, self.labels)
        need("head" not in self.bias, "the head bias is set by logit_bias", "got bias='head'", "leave it out")
        need_known("pool", self.pool, POOLS)
        need(
            self.pool == "first" or self.head in ("pooler", "classes"),
            "pool has an effect only with head='pooler' or head='classes'",
            f"got pool={self.pool!r} with head={self.head!r}",
            "leave it out",
        )
        check_transform_head(self.head_transform, self.head, READERS)
        self._check_transforms()

    def _check_transforms(self) -> None:
        """Raise unless the transforms of hidden states before the logits are those of this head."""
        need(
            self.pool != "late" or not self.head_transform,
            "pool='late' is an option of the pooler",
            "got head_transform=True",
            "leave one of them out",
        )
        need(
            self.masked_transform or (self.head == "masked" and self.table_width == self.width),
            "masked_transform=False needs head='masked' and token embeddings as wide as the model",
            f"got head={self.head!r} and embedding_width={self.embedding_width}",
            "leave it out",
        )
        need(
            self.masked_transform or (self.head_norm and self.head_bias),
            "head_norm and head_bias have an effect only with masked_transform",
            f"got {self.head_norm} and {self.head_bias}",
            "leave them out",
        )
        need(
            self.head_norm or self.head_transform or self.head == "masked",
            "head_norm has an effect only with head='masked' or head_transform",
            f"got head_norm=False with head={self.head!r}",
            "leave it out",
        )
        need(
            (self.tie_embeddings and self.logit_bias) or self.head == "masked",
            "tie_embeddings and logit_bias have an effect only with head='masked'",
            f"got {self.tie_embeddings} and {self.logit_bias} with head={self.head!r}",
            "leave them out",
        )

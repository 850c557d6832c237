"""The contract of a model adapter: inputs, hooks on activations, outputs and weights, as used by the probes."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ordinate.core.shapes import Ids, Keys, Outputs, Queries, SourceIds, Tokens, Values, Weights
from ordinate.data.tokenizer import Tokenizer

ModelKind = Literal["decoder", "encoder", "encoder-decoder", "cross-attention", "vision"]
# attention scores at or below this are of masked pairs
MASKED_SCORE = -1e4


class NotApplicable(ValueError):  # noqa: N818 - a reason, shown in the report
    """A probe or measurement does not apply to this model; the message is the reason."""


@dataclass(frozen=True)
class ModelInfo:
    """Static information about a model.

    Args:
        name: name for reports.
        family: architecture: gpt2, llama, ours.
        kind: decoder (causal; also that of an encoder-decoder), encoder, encoder-decoder (its encoder is probed),
            cross-attention (of a decoder to the output of its encoder), vision.
        layers: number of layers of the probed part.
        heads: query heads of a layer.
        kv_heads: key and value heads.
        width: width of the residual stream.
        vocabulary: vocabulary size; 0 for images.
        max_length: maximum input length [tokens]; None: unlimited.
        position: how position enters: learned, sinusoidal, rope, alibi, relative, none, ...
        prefix: number of leading tokens without a position: class token, registers.
        grid: rows and columns of patches; None for text.
        image: channels, rows and columns of an image [pixels]; None for text.
        first_token: id of the first token of each text (BOS, [CLS]); None: none.
        mask_token: id of the mask token; None: none.
        start_token: id of the first token of a target; None: the model has no decoder beside its encoder.
        source_vocabulary: vocabulary size of the source that a decoder reads; 0: it reads none.
        dtype: data type of the parameters.
        left_out: which parts are not probed, and why.
        special_tokens: token ids that no text has between its first and its last token (padding, BOS, EOS, mask ...).
    """

    name: str
    family: str
    kind: ModelKind
    layers: int
    heads: int
    kv_heads: int
    width: int
    vocabulary: int
    max_length: int | None
    position: str
    prefix: int = 0
    grid: tuple[int, int] | None = None
    image: tuple[int, int, int] | None = None
    first_token: int | None = None
    mask_token: int | None = None
    start_token: int | None = None
    source_vocabulary: int = 0
    dtype: torch.dtype = torch.float32
    left_out: str = ""
    special_tokens: frozenset[int] = frozenset()

    @property
    def causal(self) -> bool:
        """Whether attention is causal."""
        return self.kind == "decoder"

    @property
    def ordinary_tokens(self) -> Int[Tensor, "tokens"]:
        """The tokens that random texts are drawn from: all but special ones, which some models do not count."""
        special = {*self.special_tokens, self.first_token, self.mask_token}
        return torch.tensor([token for token in range(self.vocabulary) if token not in special], dtype=torch.long)

    def need_one_text(self, what: str) -> None:
        """Raise unless queries and keys are of one text, as in self-attention.

        Args:
            what: what needs it, as the subject of a sentence in the plural.

        Raises:
            NotApplicable: they are of two, as in cross-attention.
        """
        if self.kind == "cross-attention":
            raise NotApplicable(
                f"{what} need queries and keys of one text; in the cross-attention of {self.name} the keys are of "
                "the source; attach the part decoder or encoder, or record the patterns"
            )

    @property
    def position_phrase(self) -> str:
        """How position enters, as a phrase."""
        return "no position encoding was found" if self.position == "none" else f"position enters by {self.position}"


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs of one forward pass: tokens or images, positions and attention mask.

    Args:
        ids: token ids; None for images.
        positions: position index of each token, from 0 in the order of the model; None: the default positions.
        mask: attention mask, True where a query (row) may attend to a key (column); None: the mask of the model.
        images: pixels.
        embeddings: replacements for the token embeddings, before positions are added; None: the embeddings of `ids`.
        gradients: whether outputs and activations stay in the graph, so that `backward` can be called on them.
        source: token ids of the source, of the decoder or the cross-attention of an encoder-decoder: one text, or one
            for each target; None: the source given to `attach`.
    """

    ids: Ids | None = None
    positions: Int[Tensor, "b n"] | None = None
    mask: Bool[Tensor, "#b i j"] | None = None
    images: Float[Tensor, "b channels height width"] | None = None
    embeddings: Tokens | None = None
    gradients: bool = False
    source: SourceIds | None = None


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """Activations inside the attention of one layer.

    Args:
        q: queries, after RoPE if the model has it.
        k: keys, likewise; with fewer heads than the queries (grouped-query attention), each serves a group of
            adjacent query heads.
        v: values.
        scores: the input of the softmax: scaled products with biases and soft-capping; -inf or a large negative
            number where masked.
        pattern: the attention pattern, the output of the softmax.
        out: weights times values, by head, after interventions.
    """

    q: Queries
    k: Keys
    v: Values
    scores: Weights
    pattern: Weights
    out: Outputs


class Hooks:
    """Hooks on the activations of a forward pass; subclasses override the ones they need.

    Each hook gets the index of the layer, from 0, and an activation. A returned tensor replaces the activation (an
    intervention); None leaves it unchanged. Only overridden hooks cost time. Tensors are those of the model, not
    copies: reduce them in the hook, since storing all attention maps would exhaust memory. Hooks that accumulate are
    for one series of passes; make new ones for the next (`ordinate.probing.record` needs none).
    """

    skip_head: bool = False
    """Whether no logits are needed: the forward pass then stops after the last layer."""

    @property
    def overridden(self) -> frozenset[str]:
        """Names of the overridden hooks."""
        return frozenset(
            x for x in HOOK_NAMES if getattr(getattr(self, x), "__func__", None) is not getattr(Hooks, x)
        )

    def residual(self, layer: int, x: Tokens) -> Tokens | None:
        """The residual stream at the input of a layer; layer == layers: after the last layer, before any norm."""

    def qk_before_rope(self, layer: int, q: Queries, k: Keys) -> tuple[Queries, Keys] | None:
        """Queries and keys before RoPE; not called for models without RoPE."""

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values] | None:
        """Queries, keys and values as used in attention, after RoPE."""

    def attention_scores(self, layer: int, scores: Weights) -> Weights | None:
        """Attention scores, the input of the softmax."""

    def attention_pattern(self, layer: int, weights: Weights) -> Weights | None:
        """The attention pattern, the output of the softmax."""

    def head_output(self, layer: int, z: Outputs) -> Outputs | None:
        """The output of each head, weights times values, before the output projection."""

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        """All activations of a layer's attention, after all interventions; read-only."""

    def attention_output(self, layer: int, a: Tokens) -> Tokens | None:
        """The attention output of a layer that is added to the residual stream."""


HOOK_NAMES = (
    "residual",
    "qk_before_rope",
    "qkv",
    "attention_scores",
    "attention_pattern",
    "head_output",
    "attention",
    "attention_output",
)
"""Names of all hooks."""
ATTENTION_HOOKS = frozenset(HOOK_NAMES) - {"residual", "attention_output"}
"""Hooks inside attention."""


@dataclass(frozen=True, eq=False)
class ForwardOutput:
    """Outputs of a forward pass.

    Args:
        residual: the residual stream after the last layer, before any norm.
        logits: of the next token (decoder), of the token at each position (masked-language head), of the classes
            (vision: one position); None: the model has no head, or the watch is headless.
    """

    residual: Tokens
    logits: Float[Tensor, "b places classes"] | None


@dataclass(frozen=True, eq=False)
class Projection:
    """Projection matrices of a layer by head, used as x W with W of shape (width, head width).

    Args:
        query: W_Q of each query head.
        key: W_K of each key head.
        value: W_V of each key head.
        out: W_O of each query head, from head width to width.
        norm_weight: weight of the preceding norm, one number for each column; ones if there is no norm.
        output_norm: whether a norm follows W_O, before its output is added to the residual stream.
        output_gate: whether the outputs of the heads are multiplied by gates before W_O.
    """

    query: Float[Tensor, "h width d"]
    key: Float[Tensor, "g width d"]
    value: Float[Tensor, "g width e"]
    out: Float[Tensor, "h e width"]
    norm_weight: Float[Tensor, "width"]
    output_norm: bool = False
    output_gate: bool = False


class ModelAdapter(ABC):
    """Adapter that gives probes uniform access to a model.

    Must: `priority`, `unsupported_reason`, `info`, `forward`, `token_table`.
    May: `predict`, `skip_connection`; and `position_table`, `projection`, `tokenize`, `installed`, which raise
        `NotApplicable` with the reason where they do not apply.

    Each verifies itself on construction: with hooks that change nothing, a forward pass must reproduce the output of
    the plain model, and where the blocks allow it the residual stream plus the attention output must be the input of
    the next part.
    """

    model: Any = None
    """The model, or its part that is probed; None: the adapter computes it itself."""
    whole: Any = None
    """The whole model; None: the adapter computes it itself."""
    tokenizer: Tokenizer | None = None
    """The tokenizer of the model; None: none."""
    trained_length: int | None = None
    """Tokens of its training sequences, as its study or its config.json says; None: not known."""
    priority: ClassVar[int]
    """Adapters are tried in ascending order."""

    @classmethod
    @abstractmethod
    def unsupported_reason(cls, model: object) -> str | None:
        """Return the reason why this adapter does not support a model; None if it can be tried."""

    @property
    def unchanged(self) -> "ModelAdapter":
        """The model without interventions."""
        return self

    def seen_through(self, other: "ModelAdapter") -> "ModelAdapter":
        """Return another part of this model, under the interventions of this one."""
        return other

    def installed(self, watch: Hooks) -> AbstractContextManager[object]:
        """Context manager: hooks of this part during passes of another part of the model.

        Raises:
            NotApplicable: the model does not support them.
        """
        raise NotApplicable(f"{self.info.name} has no other parts")

    @property
    @abstractmethod
    def info(self) -> ModelInfo:
        """Static information about the model."""

    @abstractmethod
    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        """Run a forward pass with hooks, in evaluation mode, and without gradients unless the inputs ask for them.

        Raises:
            NotApplicable: the model does not support these positions, this mask or these hooks.
        """

    def predict(self, inputs: Inputs) -> Float[Tensor, "b places classes"] | None:
        """Return the logits of a plain forward pass, by the model's own attention; None: the model has no head."""
        return self.forward(inputs).logits

    def skip_connection(self, layer: int, x: Tokens) -> Tokens:
        """Return what the attention output of a layer with the input x is added to: x, or its norm in some models."""
        return x

    @abstractmethod
    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        """Return the token embeddings, in the width of the model.

        Raises:
            NotApplicable: the model has none (images), or none in this width.
        """

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        """Return the position embeddings that are added to the tokens.

        Raises:
            NotApplicable: the model adds no position embeddings.
        """
        raise NotApplicable(
            f"{self.info.name} adds no position embeddings to its tokens: {self.info.position_phrase}"
        )

    def projection(self, layer: int) -> Projection:
        """Return the projection matrices of a layer, before any norm of queries and keys.

        Raises:
            NotApplicable: they cannot be extracted.
        """
        raise NotApplicable(f"the projection matrices of {self.info.family} cannot be extracted")

    def tokenize(self, text: str) -> Int[Tensor, "n"]:
        """Tokenize a text, without special tokens.

        Raises:
            NotApplicable: the model has no tokenizer.
        """
        raise NotApplicable(f"{self.info.name} has no tokenizer")

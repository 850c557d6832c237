"""A model as a probe sees it: what goes in, what can be watched and changed on the way, what comes out."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ordinate.shapes import Ids, Keys, Outputs, Queries, Tokens, Values, Weights

Kind = Literal["decoder", "encoder", "encoder-decoder", "vision"]


class Unfit(ValueError):  # noqa: N818 - a reason, shown in the report
    """This model cannot be asked this; the reason stands in the message."""


@dataclass(frozen=True)
class Facts:
    """What is known of a model before it is measured.

    Args:
        name: what it is called.
        family: its architecture: gpt2, llama, ours.
        kind: decoder (reads from left to right), encoder, encoder-decoder (its encoder is measured), vision.
        layers: layers of the part that is measured.
        heads: query heads of a layer.
        kv_heads: key and value heads.
        width: columns of the residual stream.
        vocabulary: different tokens; 0 for images.
        max_length: longest input that it takes [tokens]; None: any.
        position: how position enters: learned, sinusoidal, rope, alibi, relative, none, ...
        prefix: tokens in front that stand nowhere: a class token, registers.
        grid: rows and columns of patches; None for text.
        image: channels, rows and columns of an image [pixels]; None for text.
        first_token: the id that texts begin with (BOS, [CLS]); None: none.
        mask_token: the id that stands in the place of a hidden token; None: none.
        dtype: the type of its numbers.
        left_out: what of it is not measured, and why.
    """

    name: str
    family: str
    kind: Kind
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
    dtype: torch.dtype = torch.float32
    left_out: str = ""

    @property
    def causal(self) -> bool:
        """Whether no token sees those after it."""
        return self.kind == "decoder"

    @property
    def entering(self) -> str:
        """How position enters, in words."""
        return "no position code was found" if self.position == "none" else f"position enters by {self.position}"


@dataclass(frozen=True, eq=False)
class Inputs:
    """One forward pass: tokens or images, where they stand, and who sees whom.

    Args:
        ids: tokens; of images None.
        positions: the index of each token's position, counted from 0 in the model's own order; None: the usual ones.
        visible: whether each query (row) sees each key (column); None: as the model does.
        images: pixels.
        vectors: what stands in the place of the token vectors, before any position is added; None: the table's.
    """

    ids: Ids | None = None
    positions: Int[Tensor, "b n"] | None = None
    visible: Bool[Tensor, "#b n n"] | None = None
    images: Float[Tensor, "b channels height width"] | None = None
    vectors: Tokens | None = None


@dataclass(frozen=True, eq=False)
class Attended:
    """The attention of one layer while it is computed.

    Args:
        q: queries, rotated where the model rotates.
        k: keys, likewise; with fewer heads than the queries, each serves a group of neighbours.
        v: values.
        scores: what the softmax is taken of: scaled products, biases, caps; -inf, or hugely negative, where unseen.
        weights: the softmax.
        out: weights times values, head by head.
    """

    q: Queries
    k: Keys
    v: Values
    scores: Weights
    weights: Weights
    out: Outputs


class Watch:
    """What a probe sees and changes in a forward pass: methods that do nothing by default.

    Each is called with the number of the layer, from 0. What it returns takes the place of what it was given; None
    leaves it. Only what is overridden costs anything. Tensors are the model's own: keep sums, never the maps.
    """

    headless: ClassVar[bool] = False
    """Whether all is seen when the last layer ends: the pass ends there, and no logits are computed."""

    @property
    def hooks(self) -> frozenset[str]:
        """The names of the methods that it overrides."""
        return frozenset(x for x in HOOKS if getattr(getattr(self, x), "__func__", None) is not getattr(Watch, x))

    def stream(self, layer: int, x: Tokens) -> Tokens | None:
        """The residual stream as it enters a layer; with layer == layers, as it leaves the last (before any norm)."""

    def raw(self, layer: int, q: Queries, k: Keys) -> tuple[Queries, Keys] | None:
        """Queries and keys before they are rotated; never called by models that do not rotate."""

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values] | None:
        """Queries, keys and values as they enter the products."""

    def scores(self, layer: int, scores: Weights) -> Weights | None:
        """What the softmax is taken of."""

    def weights(self, layer: int, weights: Weights) -> Weights | None:
        """What the softmax gave."""

    def attended(self, layer: int, seen: Attended) -> None:
        """Everything of a layer's attention, after all changes."""

    def branch(self, layer: int, a: Tokens) -> Tokens | None:
        """What the attention of a layer adds to the residual stream."""


HOOKS = ("stream", "raw", "marked", "scores", "weights", "attended", "branch")
"""What a watch may override."""
ATTENTION = frozenset(HOOKS) - {"stream", "branch"}
"""What of it asks for attention."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What came out of a forward pass.

    Args:
        stream: the residual stream as it leaves the last layer, before any norm.
        logits: of the next token (decoder), of the token that stands there (masked head), of classes (vision: one
            place); None: the model has no head, or the watch is headless.
    """

    stream: Tokens
    logits: Float[Tensor, "b places classes"] | None


@dataclass(frozen=True, eq=False)
class Projection:
    """The matrices by which a layer makes queries and keys, head by head, as x W: (width, head width).

    Args:
        query: of each query head.
        key: of each key head.
        value: of each key head.
        out: of each query head, back to the width.
        gain: what the norm before them multiplies the columns by; ones where there is none.
    """

    query: Float[Tensor, "h width d"]
    key: Float[Tensor, "g width d"]
    value: Float[Tensor, "g width e"]
    out: Float[Tensor, "h e width"]
    gain: Float[Tensor, "width"]


class Subject(ABC):
    """A model as a probe sees it.

    Must: `order`, `refuses`, `facts`, `read`, `token_table`.
    May: `position_table`, `projection`, `tokens_of`; where they cannot be, they raise `Unfit` with the reason.

    Each proves itself when it is made: with an empty watch the results are those of the model by itself, and where
    the blocks allow it the stream plus the branch is what enters the next part.
    """

    order: ClassVar[int]
    """Kinds of subjects are tried from the lowest order up."""

    @classmethod
    @abstractmethod
    def refuses(cls, model: object) -> str | None:
        """Why this kind of subject cannot be made of a model; None: it can be tried."""

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """What is known of it."""

    @abstractmethod
    def read(self, inputs: Inputs, watch: Watch | None = None) -> Reading:
        """A forward pass, in evaluation mode, without gradients, watched.

        Raises:
            Unfit: the model has no way to be given such positions, or such visibility, or to be watched so.
        """

    @abstractmethod
    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        """The vectors that tokens enter by.

        Raises:
            Unfit: it has none (images).
        """

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        """What is added to a token's vector at each position.

        Raises:
            Unfit: nothing is added.
        """
        raise Unfit(f"{self.facts.name} adds nothing to its tokens: {self.facts.entering}")

    def projection(self, layer: int) -> Projection:
        """The matrices of a layer's queries, keys and values.

        Raises:
            Unfit: they cannot be told apart.
        """
        raise Unfit(f"the matrices of queries and keys of {self.facts.family} are not known")

    def tokens_of(self, text: str) -> Int[Tensor, "n"]:
        """A text in tokens, without tokens in front.

        Raises:
            Unfit: there is no tokenizer.
        """
        raise Unfit(f"{self.facts.name} has no tokenizer beside it")

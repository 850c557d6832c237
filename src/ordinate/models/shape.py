"""The sizes and choices that make a model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from torch import nn

from ordinate import catalog
from ordinate.attention_mixer import AttentionMixer
from ordinate.checks import need, need_fraction, need_known, need_positive, need_whole, need_window
from ordinate.mixer import Mixer
from ordinate.models.block import BLOCKS, Block, Order
from ordinate.models.feedforward import GATED, PLAIN, FeedForward, Kind, usual_hidden
from ordinate.models.reversible import RUNS, Blocks
from ordinate.models.side import Side
from ordinate.recipe import Recipe

Own = TypeVar("Own", bound="Shape")
Norm = Literal["rms", "layer"]
Place = Literal["norm", "feedforward", "head"]
NORMS: dict[Norm, Callable[..., nn.Module]] = {"rms": nn.RMSNorm, "layer": nn.LayerNorm}
PLACES: tuple[Place, ...] = ("norm", "feedforward", "head")
# standard deviation of weights and token vectors at birth, as in GPT-2; schemes match their own numbers to it
TOKEN_SCALE = 0.02


@dataclass(frozen=True)
class Shape:
    """The sizes and choices that make a model.

    Args:
        vocabulary: different tokens.
        width: columns of the model.
        layers: blocks.
        heads: query heads.
        kv_heads: key and value heads; None: as many as query heads.
        head_width: channels of a head; None: width / heads.
        scheme: the positional scheme, options inline, or several: see `Recipe.read`.
        mixer: the token mixer, options inline; several are a plan for the layers: `window,window,softmax`.
        windows: how many tokens a layer's tokens see at most, themselves included; one for each layer, again from the
            first on when there are more layers; None: all [tokens].
        max_length: longest input that schemes with a table must serve [tokens].
        norm: `rms` or `layer`.
        epsilon: added to what a norm divides by; None: what PyTorch takes (1e-5 for `layer`).
        order: where the norms stand: `pre`, `post` (the first transformer), `parallel` (GPT-NeoX), `shared` (GPT-J).
        feedforward: `gelu`, `gelu_tanh`, `relu`, `silu`, or with a gate `swiglu`, `geglu`, `geglu_tanh`.
        hidden: columns inside the feed-forward; None: 4 width, or 8/3 width with a gate.
        bias: where numbers are added beside matrices: `norm` (of `layer`), `feedforward`, `head`. Attention has its
            own choice: `mixer="softmax:variant.bias=true"`.
        dropout: share dropped in training, of attention weights and of each branch.
        tied: whether the output head reads the token table.
        embedding_norm: whether token vectors are normed before the first layer (Bloom).
        layer_scale: what the columns of each branch are multiplied by at birth, then trained (DINOv2); None: nothing.
        first_norm: whether the first layer norms what enters its mixer (ModernBERT's does not).
        blocks: `plain`, or `reversible`: training computes each layer twice and remembers none, see `run_reversible`.

    Raises:
        ValueError: sizes that do not fit, or a choice that does not exist or has no effect.
    """

    vocabulary: int
    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int | None = None
    head_width: int | None = None
    scheme: str = "rope"
    mixer: str = "softmax"
    windows: tuple[int | None, ...] = (None,)
    max_length: int = 1024
    norm: Norm = "rms"
    epsilon: float | None = None
    order: Order = "pre"
    feedforward: Kind = "gelu"
    hidden: int | None = None
    bias: tuple[Place, ...] = ("norm",)
    dropout: float = 0.0
    tied: bool = True
    embedding_norm: bool = False
    layer_scale: float | None = None
    first_norm: bool = True
    blocks: Blocks = "plain"

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "max_length"):
            need_whole(name, getattr(self, name))
            need_positive(name, getattr(self, name))
        for name in ("hidden", "head_width", "epsilon", "layer_scale"):
            if getattr(self, name) is not None:
                need_positive(name, getattr(self, name))
        need(
            self.head_width is not None or self.width % self.heads == 0,
            "heads must divide width",
            f"got width {self.width}, heads {self.heads}",
            "choose heads that do",
        )
        need_fraction("dropout", self.dropout)
        for window in self.windows:
            need_window(window)
        for name, count in (("windows", len(self.windows)), ("mixers", len(Recipe.entries(self.mixer)))):
            need(
                count > 0 and self.layers % count == 0,
                f"{name} must fit the layers a whole number of times",
                f"got {count} for {self.layers} layers",
                "give one for each, or a number that divides them",
            )
        for kind, name, known in (
            ("norm", self.norm, NORMS),
            ("order", self.order, BLOCKS),
            ("feedforward", self.feedforward, {**PLAIN, **GATED}),
            ("blocks", self.blocks, RUNS),
            *(("place of a bias", place, PLACES) for place in self.bias),
        ):
            need_known(kind, name, known)
        self._check_choices()

    @property
    def sizes(self) -> dict[str, Any]:
        """What schemes and mixers may ask for by name."""
        return {
            "width": self.width,
            "layers": self.layers,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_width": self.width // self.heads if self.head_width is None else self.head_width,
            "max_length": self.max_length,
            "scale": TOKEN_SCALE,
            "dropout": self.dropout,
        }

    @property
    def hidden_width(self) -> int:
        """Columns inside the feed-forward."""
        return usual_hidden(self.feedforward, self.width) if self.hidden is None else self.hidden

    @property
    def branches(self) -> int:
        """How many branches a layer adds."""
        return 2

    @property
    def sides(self) -> dict[str, Side]:
        """Where the model has positional schemes, by name."""
        return {"layers": Side("scheme", "schemes", self)}

    @property
    def layer_windows(self) -> list[int | None]:
        """The window of each layer."""
        return [self.windows[layer % len(self.windows)] for layer in range(self.layers)]

    def make_schemes(self) -> Recipe:
        """The positional schemes and the layers that each serves."""
        return Recipe.read(self.scheme, self.sizes)

    def make_mixer(self, layer: int) -> Mixer[Any]:
        """The token mixer of a layer, counted from 0."""
        return self._mixer(self.mixer, layer)

    def full(self: Own) -> Own:
        """The same, with everything said that may be left open."""
        usual = self.sizes["head_width"] * self.heads == self.width
        return replace(
            self,
            kv_heads=self.heads if self.kv_heads is None else self.kv_heads,
            head_width=None if usual else self.head_width,
            hidden=self.hidden_width,
            windows=tuple(self.layer_windows),
        )

    def _mixer(self, line: str, layer: int) -> Mixer[Any]:
        entries = Recipe.entries(line)
        name, options = catalog.parse(entries[layer % len(entries)])
        kind = catalog.load("ordinate.mixers", Mixer, name)
        need(
            self.head_width is None or "head_width" in catalog.options(kind),
            "heads of another width than width / heads belong to attention",
            f"got head_width={self.head_width} for {name}",
            "leave it out, or choose a mixer that takes it",
        )
        return kind(**catalog.bind(kind, options, {**self.sizes, "layer": layer}))

    def make_norm(self, width: int) -> nn.Module:
        """A norm for so many columns."""
        if self.norm == "rms":
            return nn.RMSNorm(width, eps=self.epsilon)
        return nn.LayerNorm(width, eps=1e-5 if self.epsilon is None else self.epsilon, bias="norm" in self.bias)

    def make_cross(self, layer: int) -> AttentionMixer | None:
        """How a layer looks at another sequence, if there is one."""
        return None

    def make_block(self, layer: int) -> Block:
        """A layer, counted from 0."""
        inner = FeedForward(self.feedforward, self.width, self.hidden_width, bias="feedforward" in self.bias)
        mixer, cross = self.make_mixer(layer), self.make_cross(layer)
        norm, width = self.make_norm, self.width
        made = BLOCKS[self.order](mixer, inner, norm, width, self.dropout, self.layer_scale, cross)
        if layer == 0 and not self.first_norm:
            made.mixer_norm = nn.Identity()
        return made

    def _check_choices(self) -> None:
        """Raise unless its choices go together."""
        need(not self.tied or "head" not in self.bias, "a tied head has no bias", "got one", "give tied=False")
        need(
            self.first_norm or self.order == "pre",
            "only a layer that norms what enters its mixer can go without",
            f"got order={self.order!r} with first_norm=False",
            "leave it out, or give order='pre'",
        )
        need(
            self.blocks == "plain" or self.order == "pre",
            "blocks that can be undone add each branch by itself",
            f"got order={self.order!r} with blocks={self.blocks!r}",
            "give order='pre', or plain blocks",
        )

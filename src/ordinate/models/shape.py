"""Hyperparameters of a model, and construction of its layers from them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar, cast

import torch
from torch import nn

from ordinate.core.checks import need_known
from ordinate.core.member_spec import MemberSpec
from ordinate.core.option_values import normalise_fields
from ordinate.mixers._mixer import Mixer
from ordinate.mixers._projections import AttentionMixer
from ordinate.mixers._spec import MixerForm, MixerSpec
from ordinate.models.block import BLOCK_CLASSES, Block, NormPosition
from ordinate.models.expert_options import ExpertOptions, check_experts
from ordinate.models.experts import NormedExperts, make_feedforward, widened
from ordinate.models.feedforward import (
    FEEDFORWARD_KINDS,
    NO_SCALES,
    FeedForwardKind,
    default_hidden_width,
    make_activation,
)
from ordinate.models.layer_inputs import LayerInputBranch, LayerInputs, nearest_number
from ordinate.models.layer_lists import Positions, check_layer_lists, of_each_layer, one_or_each
from ordinate.models.mixer_layers import (
    check_head_width,
    check_kv_heads,
    check_mixer_layers,
    check_mixer_only_layers,
    need_shareable_keys,
    takes_kv_heads,
)
from ordinate.models.norm_kinds import NORMS, Norm, make_norm
from ordinate.models.reversible import RUNNERS, BlockKind
from ordinate.models.scheme_location import SchemeLocation
from ordinate.models.shape_checks import check_choices, check_sizes
from ordinate.models.shared_layers import check_owners
from ordinate.models.text_head import (
    DECODER_HEADS,
    LOGIT_HEADS,
    TextHead,
    check_labels,
    check_padding,
    check_tied_head,
    check_transform_head,
    check_transform_options,
)
from ordinate.ops.activation import ACTIVATIONS, Activation
from ordinate.schemes._spec import LayerSchemes, SchemeForm, SchemeSpec

ShapeType = TypeVar("ShapeType", bound="Shape")
BiasLocation = Literal["norm", "feedforward", "feedforward_in", "router", "head"]
BIAS_LOCATIONS: tuple[BiasLocation, ...] = ("norm", "feedforward", "feedforward_in", "router", "head")
# standard deviation of initial weights and, by default, of token embeddings, as in GPT-2
INITIAL_STD = 0.02
MIXERS = "mixer", "second_mixer"
"""The fields that are specifications of mixers."""


@dataclass(frozen=True)
class Shape:
    """Hyperparameters of a model.

    Args:
        vocabulary: vocabulary size.
        width: hidden size (columns of the residual stream).
        layers: number of layers.
        heads: query heads.
        kv_heads: key and value heads of the mixers that have them; None: as many as query heads.
        head_width: channels of a head; None: width / heads.
        scheme: positional scheme, or several: a text, an instance, a class, or a list of these, see `SchemeSpec`.
        mixer: token mixer with options inline; a list is cycled over the layers: `window,window,softmax`.
        second_mixer: mixer of each layer beside `mixer`, with the same input and without a scheme, whose output is
            added to that of `mixer` (Falcon-H1); several are cycled over the layers; None: there is none.
        sliding_windows: sliding window of each layer, including the token itself; cycled over the layers; None: no
            window [tokens].
        max_length: longest input that schemes with a table must support [tokens].
        norm: `rms` or `layer`; `nonparametric`: LayerNorm without weights and biases (OLMo), `nonparametric_rms`:
            RMSNorm without weights (nanochat).
        norm_eps: epsilon of the norms; None: PyTorch's default (1e-5 for `layer`).
        zero_centred_norm: whether the weights of norms are added to 1, and start at 0 (Gemma, Nemotron).
        norm_position: `pre`, `post` (original transformer), `res_post` (of the output of each branch, OLMo 2), `peri`
            (before and after each branch, Gemma 2), `parallel` (GPT-NeoX), `shared` (GPT-J), `residual`: as `pre`,
            and residual connections carry the normalised input (Bloom, if so set). Several are cycled over the
            layers (Olmo Hybrid).
        feedforward: an activation function, a gated linear unit as `swiglu`, or `none` (Mamba): see `FeedForward`.
        feedforward_scales: factors of what its activation function reads and of its output (Falcon-H1).
        hidden: hidden width of the feed-forward, or of each expert; None: 4 width, or 8/3 width if gated.
        experts: a mixture of experts in the feed-forward's place, `ExpertOptions(8)`: see `Experts`; None: none.
        bias: which parts have biases: `norm` (of `layer`), `feedforward` (`feedforward_in`: only the first of its
            layers), `router` (of experts), `head`. Attention biases are an option of the mixer:
            `mixer="softmax:variant.bias=true"`.
        dropout: dropout probability of attention weights and of the output of each branch.
        tie_embeddings: whether the output head shares the weights of the token table (tied embeddings).
        head: `next_token` predicts tokens; `classes` the class of a text from its last token, `token_classes` that of
            each token, `spans` the first and the last token of an answer; `none`: hidden states only.
        head_transform: whether the head reads norm(f(W x + b)) of each hidden state x, as that of BERT does
            (ModernBERT's decoder), in place of x.
        head_activation: f, the activation function of that transform.
        head_bias: whether that transform has the bias b.
        labels: class names of a classifier, in order; a reward model has one.
        padding: padding token of a decoder with `head='classes'`, which reads the last other token; None: the last
            token is that of the geometry.
        embedding_scale: factor of the token embeddings before the first layer; the square root of the width in the
            original transformer. A tied output head uses the table without it.
        round_embedding_scale: whether that factor is rounded to the type of the embeddings (Gemma): in bfloat16, 55.4
            becomes 55.5.
        embedding_std: standard deviation of the token embeddings at initialisation, after that factor: that of the
            table is `table_std`. Schemes that add to the token embeddings get it as `scale`.
        logit_scale: factor of the final hidden states before the output head; width^(-1/2) in T5.
        logit_softcap: soft cap of the logits, which become cap tanh(logits / cap) (Gemma 2); None: no cap.
        residual_scale: factor of the output of each branch as it is added to the residual stream (Granite).
        embedding_norm: whether token embeddings are normalised before the first layer (Bloom).
        embedding_width: columns of the token table; None: `width`. Otherwise a linear map takes token embeddings to
            `width`. In a decoder positions are added after it, and another one takes final hidden states back (OPT);
            in an encoder before it (DeBERTa): a scheme that adds to them needs this width, `learned:width=128`.
        layer_scale: initial value of LayerScale (DINOv2); None: no LayerScale.
        final_norm: whether the final hidden states are normalised (in the first versions of OPT they are not).
        first_norm: whether the first layer normalises the input of its mixer (ModernBERT's does not).
        blocks: `plain`, or `reversible`: the backward pass recomputes activations, see `run_reversible`.
        mixer_only_layers: layers, counted from 0, without a feed-forward, where the others have one (Nemotron-H).
        shared_layers: for each layer the number, counted from 0, of the layer whose parameters it has: its own, or
            that of an earlier layer, `(0, 0, 0)` (ALBERT); (): all have their own. See `SharedLayers`.
        shared_keys: KV sharing across layers (Gemma 4; Brandon et al. 2024, https://arxiv.org/abs/2405.12981): for
            each layer the number of the layer whose keys and values it attends to, its own or that of an earlier
            layer with the same kind of heads; (): all have their own. Of decoders only, as are the next three.
        wide_layers: layers, counted from 0, whose feed-forward network has twice the hidden width; of experts that
            beside them.
        layer_input_width: columns of an input of each layer beside the tokens: see `LayerInputs`; None: it has none.
        layer_factors: whether the output of each layer is multiplied by a number that no gradient trains (Gemma 4).

    Raises:
        ValueError: sizes that do not fit, or a choice that does not exist or has no effect.
    """

    SPECS: ClassVar[Mapping[str, type[MemberSpec]]] = {"scheme": SchemeSpec, **dict.fromkeys(MIXERS, MixerSpec)}
    """The fields that are specifications of schemes or mixers."""

    vocabulary: int
    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int | None = None
    head_width: int | None = None
    scheme: SchemeForm = "rope"
    mixer: MixerForm = "softmax"
    second_mixer: MixerForm | None = None
    sliding_windows: tuple[int | None, ...] = (None,)
    max_length: int = 1024
    norm: Norm = "rms"
    norm_eps: float | None = None
    zero_centred_norm: bool = False
    norm_position: Positions = "pre"
    feedforward: FeedForwardKind | Literal["none"] = "gelu"
    feedforward_scales: tuple[float, ...] = NO_SCALES
    hidden: int | None = None
    experts: ExpertOptions | None = None
    bias: tuple[BiasLocation, ...] = ("norm",)
    dropout: float = 0.0
    tie_embeddings: bool = True
    head: TextHead = "next_token"
    head_transform: bool = False
    head_activation: Activation = "gelu"
    head_bias: bool = True
    labels: tuple[str, ...] = ()
    padding: int | None = None
    embedding_scale: float = 1.0
    round_embedding_scale: bool = False
    embedding_std: float = INITIAL_STD
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    residual_scale: float = 1.0
    embedding_norm: bool = False
    embedding_width: int | None = None
    layer_scale: float | None = None
    final_norm: bool = True
    first_norm: bool = True
    blocks: BlockKind = "plain"
    mixer_only_layers: tuple[int, ...] = ()
    shared_layers: tuple[int, ...] = ()
    shared_keys: tuple[int, ...] = ()
    wide_layers: tuple[int, ...] = ()
    layer_input_width: int | None = None
    layer_factors: bool = False

    def __post_init__(self) -> None:
        # NumPy's numbers cannot be written to a config.json
        normalise_fields(self)
        self._check_sizes()
        for name, spec in self.SPECS.items():
            if getattr(self, name) is not None:
                object.__setattr__(self, name, spec.of(getattr(self, name), self.bindable_sizes))
        object.__setattr__(self, "norm_position", one_or_each(self.norm_position))
        norms, mixers = self.norm_position, self.mixer_spec.entries
        counts = {"sliding_windows": len(self.sliding_windows), "mixers": len(mixers)}
        counts["second mixers"] = 1 if self.second_mixer_spec is None else len(self.second_mixer_spec.entries)
        check_layer_lists(self.layers, norm_positions=1 if isinstance(norms, str) else len(norms), **counts)
        for kind, name, known in (
            ("norm", self.norm, NORMS),
            ("feedforward", self.feedforward, (*FEEDFORWARD_KINDS, "none")),
            ("blocks", self.blocks, RUNNERS),
            ("head_activation", self.head_activation, ACTIVATIONS),
            *(("bias location", place, BIAS_LOCATIONS) for place in self.bias),
        ):
            need_known(kind, name, known)
        check_owners("shared_layers", self.shared_layers, self.layers)
        check_owners("shared_keys", self.shared_keys, self.layers)
        check_choices(self)
        check_kv_heads("kv_heads", self.kv_heads, self.heads, self.takes_kv_heads)
        if self.feedforward == "none":
            given = self.hidden, self.experts, self.mixer_only_layers or None
            check_mixer_layers(given, self.bias, self.layer_norm_positions, self.blocks)
        else:
            check_experts(self.experts, self.layers, self.feedforward, self.bias)
            dense = () if self.experts is None else self.experts.dense_layers
            check_mixer_only_layers(self.mixer_only_layers, dense, self.layer_norm_positions, self.blocks)
        self._check_head()

    @property
    def bindable_sizes(self) -> dict[str, Any]:
        """Sizes that are bound by name to constructor arguments of schemes and mixers."""
        return {
            "width": self.width,
            "layers": self.layers,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_width": self.width // self.heads if self.head_width is None else self.head_width,
            "max_length": self.max_length,
            "scale": self.embedding_std,
            "dropout": self.dropout,
        }

    @property
    def has_token_table(self) -> bool:
        """Whether its inputs are tokens with an embedding each."""
        return True

    @property
    def table_width(self) -> int:
        """Columns of the token table, those that a scheme appends included."""
        return self.width if self.embedding_width is None else self.embedding_width

    @property
    def table_std(self) -> float:
        """Standard deviation of the token table at initialisation, before the factor."""
        return self.embedding_std / self.embedding_scale

    def embedding_factor(self, kind: torch.dtype) -> float:
        """Return the factor of token embeddings of this type."""
        return nearest_number(self.embedding_scale, kind) if self.round_embedding_scale else self.embedding_scale

    @property
    def hidden_width(self) -> int:
        """Hidden width of the feed-forward."""
        kind, given = self.feedforward, self.hidden or 0
        return given if given or kind == "none" else default_hidden_width(kind, self.width)

    @property
    def branches(self) -> int:
        """Number of residual branches of all layers together."""
        return self.layers if self.feedforward == "none" else 2 * self.layers - len(self.mixer_only_layers)

    @property
    def scheme_locations(self) -> dict[str, SchemeLocation]:
        """Locations of positional schemes in the model, by name."""
        return {"layers": SchemeLocation("scheme", "schemes", self)}

    @property
    def layer_windows(self) -> list[int | None]:
        """Sliding window of each layer."""
        return [self.sliding_windows[layer % len(self.sliding_windows)] for layer in range(self.layers)]

    @property
    def layer_norm_positions(self) -> list[NormPosition]:
        """Position of the norms of each layer."""
        return of_each_layer(self.norm_position, self.layers)

    @property
    def scheme_spec(self) -> SchemeSpec:
        """`scheme`, parsed, to which the sizes of this model are given where a scheme takes them."""
        return SchemeSpec.of(self.scheme, self.bindable_sizes)

    @property
    def mixer_spec(self) -> MixerSpec:
        """`mixer`, parsed, to which the sizes of this model are given where a mixer takes them."""
        return MixerSpec.of(self.mixer, self.bindable_sizes)

    @property
    def second_mixer_spec(self) -> MixerSpec | None:
        """`second_mixer`, parsed as `mixer` is; None: there is none."""
        return None if self.second_mixer is None else MixerSpec.of(self.second_mixer, self.bindable_sizes)

    def make_schemes(self) -> LayerSchemes:
        """Build the positional schemes, with the scheme index of each layer."""
        return self.scheme_spec.build(self.bindable_sizes)

    def make_mixer(self, layer: int) -> Mixer[Any]:
        """Build the token mixer of a layer, counted from 0."""
        made = self._mixer(self.mixer_spec, layer)
        if self.shared_keys and self.shared_keys[layer] != layer:
            need_shareable_keys(made, layer).leave_out_keys()
        return made

    def make_layer_inputs(self) -> LayerInputs | None:
        """Build what makes the inputs of all layers beside the tokens; None: they have none."""
        columns = self.layer_input_width
        sizes = self.vocabulary, self.layers, self.width
        return None if columns is None else LayerInputs(*sizes, columns, self.make_norm)

    def with_defaults(self: ShapeType) -> ShapeType:
        """Return a copy with all defaults filled in."""
        usual = self.bindable_sizes["head_width"] * self.heads == self.width
        return replace(
            self,
            kv_heads=self.mixer_spec.key_heads(self.kv_heads, self.heads),
            head_width=None if usual else self.head_width,
            hidden=self.hidden_width or None,
            experts=None if self.experts is None else self.experts.with_defaults(self.hidden_width),
            sliding_windows=tuple(self.layer_windows),
            norm_position=tuple(self.layer_norm_positions),
            embedding_width=None if self.table_width == self.width else self.embedding_width,
            mixer_only_layers=tuple(sorted(self.mixer_only_layers)),
            shared_layers=() if self.shared_layers == tuple(range(self.layers)) else self.shared_layers,
            shared_keys=() if self.shared_keys == tuple(range(self.layers)) else self.shared_keys,
            wide_layers=tuple(sorted(self.wide_layers)),
        )

    def takes_kv_heads(self, count: int) -> bool:
        """Return whether a mixer of the model would have this number of key and value heads as the model's."""
        return takes_kv_heads(self.mixer_spec, count)

    def _mixer(self, spec: MixerSpec, layer: int) -> Mixer[Any]:
        check_head_width(self.head_width, spec)
        return spec.build(layer, self.bindable_sizes)

    def make_norm(self, width: int) -> nn.Module:
        """Build a norm for this number of columns."""
        bias = "norm" in self.bias
        return make_norm(self.norm, width, self.norm_eps, zero_centred=self.zero_centred_norm, bias=bias)

    def make_cross_attention(self, layer: int) -> AttentionMixer | None:
        """Build the cross-attention mixer of a layer; None: no cross-attention."""
        return None

    def block_class(self, layer: int) -> Callable[..., Block]:
        """Return what makes a layer, counted from 0, of its parts."""
        return BLOCK_CLASSES[self.layer_norm_positions[layer]]

    def make_block(self, layer: int) -> Block:
        """Build a layer, counted from 0."""
        # in this order: they draw their initial weights from one random generator
        inner = self._make_feedforward(layer)
        mixer, cross = self.make_mixer(layer), self.make_cross_attention(layer)
        scales = self.dropout, self.layer_scale, cross, self.residual_scale
        made = self.block_class(layer)(mixer, inner, self.make_norm, self.width, *scales)
        if self.second_mixer_spec is not None:
            made.add_mixer(self.second_mixer_spec.build(layer, self.bindable_sizes))
        if layer == 0 and not self.first_norm:
            made.mixer_norm = nn.Identity()
        if isinstance(inner, NormedExperts):
            made.feedforward_norm = nn.Identity()
        if self.layer_input_width is not None:
            activation = make_activation(cast(Any, self.feedforward))
            sizes = self.width, self.layer_input_width
            made.add_layer_input(LayerInputBranch(*sizes, activation, self.make_norm))
        if self.layer_factors:
            made.add_factor()
        return made

    def _make_feedforward(self, layer: int) -> nn.Module | None:
        if self.feedforward == "none" or layer in self.mixer_only_layers:
            return None
        hidden, options = self.hidden_width, self.experts
        if layer in self.wide_layers:
            hidden, options = widened(hidden, options)
        sizes, places = (self.width, hidden, self.bias), {"layer": layer, "norm": self.make_norm}
        return make_feedforward(
            self.feedforward, *sizes, options=options, scales=self.feedforward_scales, **cast(Any, places)
        )

    def _check_sizes(self) -> None:
        check_sizes(self)

    def _check_head(self) -> None:
        """Raise unless the head is one of this kind of model, and its options are consistent."""
        need_known("head", self.head, DECODER_HEADS)
        check_labels(self.head, self.labels)
        check_tied_head(self.head, self.tie_embeddings, self.bias)
        check_padding(self.head, self.padding, self.vocabulary)
        check_transform_head(self.head_transform, self.head, LOGIT_HEADS)
        check_transform_options(self.head_transform, self.head_activation, self.head_bias)

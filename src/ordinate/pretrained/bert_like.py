"""Base class of BERT-like encoders."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

from jaxtyping import Int
from torch import Tensor

from ordinate.core.checks import need
from ordinate.models.block import NormPosition
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.feedforward import GATED, FeedForwardKind, Gate
from ordinate.models.shape import BiasLocation, Shape
from ordinate.models.text_head import READERS, EncoderHead, TextHead
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import Family, StackedPair, StackedQKV, TensorRule, linear_rules
from ordinate.pretrained.activation_names import HF_ACTIVATIONS, activation_kind, activation_name
from ordinate.pretrained.text_heads import head_classes, head_labels, head_settings, masked_logit_rules

MIXER = "softmax:variant.bias=true"
ATTENTION = "attention."


class BertLike(Family):
    """BERT-like encoders: learned absolute positions, token types, post-norm, biases in every layer.

    Must: `model_type`, `prefix`, `masked_lm_class`, `causal_lm_class`, `base_class`, `masked_transform`,
        `masked_norm`, and `masked_logits` or `masked_decoder`.
    May: `keys`, `layer`, `projections`, `parts` and `final_norm` (other names), `norm_position`, `embedding_norm`,
        `activations`, `biases`, `text_heads`, `text_classifier`,
        `classifier_rules`, `masked_logit_rules`, `head_activation`, `pool_activation`, `named_heads`, `has_pooler`,
        `pooler`, `mixer` with `mixers`, `embeddings` with `embeddings_config` and `embedding_rules`,
        `position_rules`, `padding`.
    """

    model_class = Encoder
    # the next-sentence-prediction head, and a pooler beside a masked-LM head
    ignored_suffixes = (
        "position_ids",
        "embeddings.token_type_ids",
        "seq_relationship.weight",
        "seq_relationship.bias",
        "pooler.dense.weight",
        "pooler.dense.bias",
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 30_522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "type_vocab_size": 2,
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
        "architectures": (),
    }
    keys: ClassVar[Mapping[str, str]] = {}
    """Other names of keys of config.json: `hidden_size` is `dim` in DistilBERT."""
    layer: ClassVar[str] = "encoder.layer"
    """Name of the list of layers, behind the prefix."""
    projections: ClassVar[Sequence[str]] = [f"attention.self.{part}" for part in ("query", "key", "value")]
    """Names of the projections of queries, keys and values in a layer, or of one that has all three."""
    text_heads: ClassVar[Sequence[TextHead]] = READERS
    """Heads of texts that the family has."""
    parts: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        "mixer.out": "attention.output.dense",
        "mixer_norm": "attention.output.LayerNorm",
        "feedforward.widen": "intermediate.dense",
        "feedforward.narrow": "output.dense",
        "feedforward_norm": "output.LayerNorm",
    }
    """Names of the other parts of a layer here, and theirs; of gates two, in the order gate and values."""
    activations: ClassVar[Mapping[str, FeedForwardKind]] = HF_ACTIVATIONS
    """The feed-forward of each activation."""
    biases: ClassVar[tuple[BiasLocation, ...]] = ("norm", "feedforward")
    """Which parts beside attention have biases."""
    final_norm: ClassVar[str] = ""
    """Name of the norm after the last layer, behind the prefix; "": none."""
    norm_position: ClassVar[NormPosition] = "post"
    """Where a layer has its norms."""
    embedding_norm: ClassVar[bool] = True
    """Whether embeddings are normalised, with positions and token types."""
    masked_lm_class: ClassVar[str]
    """The transformers class with a masked-LM head."""
    causal_lm_class: ClassVar[str]
    """The transformers class with the same head, for `is_decoder`."""
    masked_transform: ClassVar[str]
    """Name of the linear layer of the masked-LM head."""
    masked_norm: ClassVar[str]
    """Name of its norm."""
    masked_logits: ClassVar[str] = ""
    """Name of what has its bias and its decoder; "": the decoder has the bias."""
    masked_decoder: ClassVar[str] = ""
    """Name of a decoder that has the bias of the logits, tied or not."""
    base_class: ClassVar[str]
    """The transformers class without a head, which may have a pooler."""
    has_pooler: ClassVar[bool] = True
    """Whether it has one."""
    pooler: ClassVar[str] = "pooler.dense"
    """Name of its linear layer, behind the prefix."""
    head_activation: ClassVar[Activation | None] = None
    """Activation of the masked-LM head; None: that of the feed-forward."""
    text_classifier: ClassVar[tuple[str, str]] = ("", "classifier")
    """Names of the two layers of a classifier of texts; "": the first is the pooler."""
    mixers: ClassVar[tuple[str, ...]] = (MIXER,)
    """The mixers that its models may have."""

    def named_heads(self) -> dict[str, EncoderHead]:
        """Return the heads of the classes of transformers, by their names."""
        # the class for pre-training has a masked-LM head and one for the next sentence
        stem = self.base_class.removesuffix("Model")
        masked = (self.masked_lm_class, self.causal_lm_class, f"{stem}ForPreTraining")
        return cast(
            dict[str, EncoderHead],
            {**dict.fromkeys(masked, "masked"), **head_classes(self.base_class, self.text_heads)},
        )

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide on the head by the class that config.json names, and by the tensors."""
        there, named = f"{self.masked_transform}.weight" in names, (config["architectures"] or ("",))[0]
        head = self.named_heads().get(named)
        pooler = self.has_pooler and any(name.endswith(f"{self.pooler}.weight") for name in names)
        if head == "masked" and not there:
            head, told = None, f"config.json names a {named}, but no tensor is of a masked-LM head"
            self.warning = f"{told}: loaded without one"
        if self.has(config, "add_cross_attention"):
            told = "cross-attention is not loaded: it is used only together with an encoder"
            self.warning = f"{self.warning}; {told}" if self.warning else told
        usual = "masked" if there and not named else "pooler" if pooler else "none"
        return {**config, "head": usual if head is None else head}

    def has(self, config: Mapping[str, Any], name: str) -> bool:
        """Whether a key that not every family has is set."""
        return name in self.defaults and bool(config.get(name))

    def key(self, name: str) -> str:
        """Return the name of a key of BERT in this family."""
        return self.keys.get(name, name)

    def classifier_rules(self, shape: EncoderShape) -> Sequence[TensorRule]:
        """Return the tensor mappings of a classifier, or of a head for answers."""
        if shape.head != "classes":
            return linear_rules("classes", "qa_outputs" if shape.head == "spans" else "classifier", bias=True)
        first, last = self.text_classifier
        rules = linear_rules("pooler", first, bias=True) if first else self.pooler_rules()
        return [*rules, *linear_rules("classes", last, bias=True)]

    def pooler_rules(self) -> Sequence[TensorRule]:
        """Return the tensor mappings of the pooler."""
        return linear_rules("pooler", f"{self.prefix}{self.pooler}", bias=True)

    def masked_lm_rules(self, shape: EncoderShape) -> Sequence[TensorRule]:
        """Return the tensor mappings of the masked-LM head."""
        return [
            *linear_rules("masked.transform", self.masked_transform, bias=True),
            *linear_rules("masked.norm", self.masked_norm, bias=True),
            *self.masked_logit_rules(shape),
        ]

    def masked_logit_rules(self, shape: EncoderShape) -> Sequence[TensorRule]:
        """Return the tensor mappings of the logits of masked tokens, behind the transform."""
        if self.masked_decoder:
            weight, bias = (f"{self.masked_decoder}.{kind}" for kind in ("weight", "bias"))
            own = [] if shape.tie_embeddings else [TensorRule("masked.decoder.weight", (weight,))]
            return [*own, TensorRule("masked.bias", (bias,))]
        return masked_logit_rules(shape, f"{self.masked_logits}.bias", f"{self.masked_logits}.decoder")

    def position_offset(self, padding: int | None) -> int:
        """Return the row of the position table that the first token takes."""
        return 0 if padding is None else padding + 1

    def position_ids(self, positions: Int[Tensor, "b n"], shape: Shape) -> Int[Tensor, "b n"]:
        return positions + self.position_offset(cast(EncoderShape, shape).padding)

    def padding(self, config: Mapping[str, Any]) -> int | None:
        """Return the padding token if positions depend on it."""
        return None

    def position_rules(self, table: str, padding: int | None) -> Sequence[TensorRule]:
        """Return the mappings of the position table of this name."""
        return [TensorRule("schemes.0.table", (table,))]

    def mixer(self, config: Mapping[str, Any]) -> str:
        """Return the mixer of these settings, with its options: `mixer` of the shape."""
        return MIXER

    def pool_activation(self, config: Mapping[str, Any]) -> Activation:
        """Return the activation of the vector that a classifier of texts reads."""
        return "tanh"

    def token_types(self, config: Mapping[str, Any]) -> int:
        """Return the number of token types, 0 for families without them."""
        return config["type_vocab_size"] if "type_vocab_size" in self.defaults else 0

    def embeddings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a shape that describe token embeddings and positions."""
        return {"scheme": "learned", "embedding_norm": self.embedding_norm, "token_types": self.token_types(config)}

    def embeddings_config(self, shape: EncoderShape) -> dict[str, Any]:
        """Return the config.json keys of token embeddings and positions.

        Raises:
            ValueError: the family does not have them.
        """
        must, came = f"a {self.model_type} must be an encoder with scheme learned", f"got {shape.scheme_spec}"
        need(shape.scheme_spec == "learned", must, came, "use save_pretrained instead")
        return self.token_types_config(shape)

    def token_types_config(self, shape: EncoderShape) -> dict[str, Any]:
        """Return the config.json key of token types; raise a ValueError if there are none and must be."""
        if "type_vocab_size" not in self.defaults:
            return {}
        kinds, must = shape.token_types, f"a {self.model_type} has token types"
        need(kinds > 0, must, f"got token_types={kinds}", "use save_pretrained instead")
        return {"type_vocab_size": kinds}

    def token_type_rules(self, table: str, shape: EncoderShape) -> list[TensorRule]:
        """Return the tensor mapping of token types, if there are any."""
        return [TensorRule("kinds.weight", (f"{table}.token_type_embeddings.weight",))] if shape.token_types else []

    def embedding_rules(self, table: str, shape: EncoderShape) -> list[TensorRule]:
        """Return the tensor mappings of token embeddings and positions, in the part of this name."""
        return [
            TensorRule("tokens.weight", (f"{table}.word_embeddings.weight",)),
            *self.token_type_rules(table, shape),
            *self.position_rules(f"{table}.position_embeddings.weight", shape.padding),
            *(linear_rules("embedding_norm", f"{table}.LayerNorm", bias=True) if self.embedding_norm else ()),
        ]

    def architecture(self, shape: Shape) -> str:
        named = {head: name for name, head in head_classes(self.base_class, self.text_heads).items()}
        return (named | {"masked": self.masked_lm_class}).get(shape.head, self.base_class)

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        causal, head = self.has(config, "is_decoder"), cast(EncoderHead, config["head"])
        need(
            causal or not self.has(config, "add_cross_attention"),
            "add_cross_attention needs is_decoder",
            "got is_decoder=False, which transformers does not run",
            "set is_decoder in config.json, or load another checkpoint",
        )
        kind, padding = activation_kind(config, self.key("hidden_act"), self.activations), self.padding(config)
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=config[self.key("hidden_size")],
            layers=config[self.key("num_hidden_layers")],
            heads=config[self.key("num_attention_heads")],
            mixer=self.mixer(config),
            max_length=config["max_position_embeddings"] - self.position_offset(padding),
            norm="layer",
            norm_eps=config["layer_norm_eps"],
            norm_position=self.norm_position,
            feedforward=kind,
            hidden=config[self.key("intermediate_size")],
            bias=self.biases,
            causal=causal,
            tie_embeddings=config["tie_word_embeddings"] or head != "masked",
            head=head,
            head_activation=self.head_activation or cast(Activation, GATED.get(cast(Gate, kind), kind)),
            pool_activation=self.pool_activation(config) if head == "classes" else "tanh",
            labels=head_labels(head, config),
            padding=padding,
            **self.embeddings(config),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        need(
            isinstance(shape, EncoderShape) and shape.mixer_spec in self.mixers,
            f"a {self.model_type} must be an encoder with mixer {' or '.join(self.mixers)}",
            f"got {type(shape).__name__}, {shape.mixer_spec}",
            "use save_pretrained instead",
        )
        top = cast(EncoderShape, shape)
        padding = top.padding
        return {
            **({} if padding is None else {"pad_token_id": padding}),
            "architectures": [self.architecture(shape)],
            "vocab_size": shape.vocabulary,
            self.key("hidden_size"): shape.width,
            self.key("num_hidden_layers"): shape.layers,
            self.key("num_attention_heads"): shape.heads,
            self.key("intermediate_size"): shape.hidden_width,
            "max_position_embeddings": shape.max_length + self.position_offset(padding),
            "layer_norm_eps": shape.norm_eps,
            self.key("hidden_act"): activation_name(shape.feedforward, self.activations),
            **({"is_decoder": top.causal} if "is_decoder" in self.defaults else {}),
            "tie_word_embeddings": top.tie_embeddings,
            **self.embeddings_config(top),
            **head_settings(shape),
        }

    def ignored(self, shape: Shape) -> tuple[str, ...]:
        crossed = self.has(self.settings, "add_cross_attention")
        return (*self.ignored_suffixes, *(self.cross_attention() if crossed else ()))

    def cross_attention(self) -> list[str]:
        """Return the names of the tensors of a layer that read the output of an encoder."""
        parts = (*self.projections, self.parts["mixer.out"], self.parts["mixer_norm"])
        own = [part for part in parts if isinstance(part, str) and part.startswith(ATTENTION)]
        return [f"cross{part}.{kind}" for part in own for kind in ("weight", "bias")]

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here, top = f"{self.prefix}{self.layer}.{{}}", "blocks.{}", cast(EncoderShape, shape)
        projections = [f"{there}.{part}" for part in self.projections]
        qkv = TensorRule if len(projections) == 1 else StackedQKV
        biased = "variant.bias=true" in str(shape.mixer_spec)
        rules = [
            *self.embedding_rules(f"{self.prefix}embeddings", top),
            *linear_rules(f"{here}.mixer.project", *projections, kind=qkv, bias=biased),
        ]
        for ours, theirs in self.parts.items():
            names = [f"{there}.{name}" for name in ((theirs,) if isinstance(theirs, str) else theirs)]
            kind = TensorRule if len(names) == 1 else StackedPair
            has_bias = biased if ours == "mixer.out" else ours.endswith("norm") or "feedforward" in self.biases
            rules += linear_rules(f"{here}.{ours}", *names, kind=kind, bias=has_bias)
        if self.final_norm:
            rules += linear_rules("norm", f"{self.prefix}{self.final_norm}", bias=True)
        if top.head in READERS:
            return [*rules, *self.classifier_rules(top)]
        return [*rules, *{"masked": self.masked_lm_rules(top), "pooler": self.pooler_rules(), "none": []}[top.head]]

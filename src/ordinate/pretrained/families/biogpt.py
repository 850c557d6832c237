"""BioGPT."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.counted_rows import CountedRows
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.fairseq_layers import fairseq_rules

MIXER = "softmax:variant.bias=true"
# the epsilon of its norms, whatever layer_norm_eps says
EPS = 1e-5
# the last of the rows before that of the first position
PADDING = 1


class Biogpt(DecoderLike):
    """BioGPT: GPT-2 with token embeddings times the root of the width, and learned positions from the third row on.

    Source: Luo et al. 2022, BioGPT, https://arxiv.org/abs/2210.10341.
    """

    model_type = "biogpt"
    base_class = "BioGptModel"
    causal_lm_class = "BioGptForCausalLM"
    # transformers has no head for answers
    heads = ("classes", "token_classes")
    prefix = "biogpt."
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 42_384,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "hidden_act": "gelu",
        "max_position_embeddings": 1024,
        "scale_embedding": True,
        "pad_token_id": 1,
        "tie_word_embeddings": True,
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width = config["hidden_size"]
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            scheme="learned",
            mixer=MIXER,
            max_length=config["max_position_embeddings"],
            norm="layer",
            norm_eps=EPS,
            feedforward=activation_kind(config, "hidden_act"),
            hidden=config["intermediate_size"],
            bias=("norm", "feedforward"),
            embedding_scale=width**0.5 if config["scale_embedding"] else 1.0,
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        need(
            shape.scheme_spec == "learned" and shape.mixer_spec == MIXER,
            f"a biogpt requires scheme learned and mixer {MIXER}",
            f"got {shape.scheme_spec}, {shape.mixer_spec}",
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "hidden_act": activation_name(shape.feedforward),
            "max_position_embeddings": shape.max_length,
            "scale_embedding": shape.embedding_scale != 1,
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules = [
            TensorRule("tokens.weight", ("biogpt.embed_tokens.weight",)),
            CountedRows("schemes.0.table", ("biogpt.embed_positions.weight",), PADDING),
            *linear_rules("norm", "biogpt.layer_norm", bias=True),
            *fairseq_rules("biogpt.layers.{}"),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("output_projection.weight",))]

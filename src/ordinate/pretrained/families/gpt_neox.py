"""GPT-NeoX."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import GroupedQKV, TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.rope_parameters import DEFAULT_THETA, rope_parameters, rope_spec, spec_to_rope_parameters

BIASED, PLAIN = "softmax:variant.bias=true", "softmax"
# the head, and the name that transformers has for it now and writes as the first
HEAD, LATER = "embed_out.weight", "lm_head.weight"


class GptNeox(DecoderLike):
    """GPT-NeoX and Pythia: RoPE on a quarter of each head's channels, parallel attention and feed-forward.

    Source: Black et al. 2022, GPT-NeoX-20B, https://arxiv.org/abs/2204.06745.
    """

    model_type = "gpt_neox"
    base_class = "GPTNeoXModel"
    causal_lm_class = "GPTNeoXForCausalLM"
    prefix = "gpt_neox."
    ignored_suffixes = ("attention.bias", "attention.masked_bias", "rotary_emb.inv_freq")
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50_432,
        "hidden_size": 6144,
        "num_hidden_layers": 44,
        "num_attention_heads": 64,
        "intermediate_size": 24_576,
        "max_position_embeddings": 2048,
        "rope_parameters": None,
        "rotary_pct": 0.25,
        "rotary_emb_base": DEFAULT_THETA,
        "attention_bias": True,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": True,
        "tie_word_embeddings": False,
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width, heads = config["hidden_size"], config["num_attention_heads"]
        # the names that this family has beside the dictionary; those of other families have no effect
        named = {"rope_theta": config["rotary_emb_base"], "partial_rotary_factor": config["rotary_pct"]}
        parameters = rope_parameters({**config, **named}, partial=True)
        length = config["max_position_embeddings"]
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            # head_dim has an effect on the rotation only
            scheme=rope_spec(parameters, width // heads, length, partial=True, rotated_width=config.get("head_dim")),
            mixer=BIASED if config["attention_bias"] else PLAIN,
            max_length=length,
            norm="layer",
            norm_eps=config["layer_norm_eps"],
            norm_position="parallel" if config["use_parallel_residual"] else "pre",
            feedforward=activation_kind(config, "hidden_act"),
            hidden=config["intermediate_size"],
            bias=("norm", "feedforward"),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        need(
            shape.norm_position in ("parallel", "pre") and shape.mixer_spec in (BIASED, PLAIN),
            f"a gpt_neox requires norm_position parallel or pre, and mixer {BIASED} or {PLAIN}",
            f"got {shape.norm_position}, {shape.mixer_spec}",
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "max_position_embeddings": shape.max_length,
            "layer_norm_eps": shape.norm_eps,
            "use_parallel_residual": shape.norm_position == "parallel",
            "attention_bias": shape.mixer_spec == BIASED,
            "hidden_act": activation_name(shape.feedforward),
            "rope_parameters": {"partial_rotary_factor": 1.0}
            | spec_to_rope_parameters(shape.scheme_spec, shape.width // shape.heads, partial=True),
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def stored_name(self, theirs: str, names: Collection[str]) -> str:
        later = theirs == HEAD and HEAD not in names and LATER in names
        return LATER if later else super().stored_name(theirs, names)

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here, biased = "gpt_neox.layers.{}", "blocks.{}", shape.mixer_spec == BIASED
        rules = [
            TensorRule("tokens.weight", ("gpt_neox.embed_in.weight",)),
            *linear_rules("norm", "gpt_neox.final_layer_norm", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.input_layernorm", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.post_attention_layernorm", bias=True),
            *linear_rules(
                f"{here}.mixer.project", f"{there}.attention.query_key_value", kind=GroupedQKV, bias=biased
            ),
            *linear_rules(f"{here}.mixer.out", f"{there}.attention.dense", bias=biased),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.dense_h_to_4h", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.dense_4h_to_h", bias=True),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", (HEAD,))]

"""OPT."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.counted_rows import CountedRows
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.fairseq_layers import fairseq_rules

BIASED, PLAIN = "softmax:variant.bias=true", "softmax"
UNNORMED = "_remove_final_layer_norm"
# the epsilon of its norms, which config.json does not have
EPS = 1e-5
# the last of the rows before that of the first position; padding has it in transformers
PADDING = 1


class Opt(DecoderLike):
    """OPT: learned positions, of which padding has none; the smaller of two models has its norms after residual sums.

    Its token table may be narrower than the model (OPT-350M).

    Source: Zhang et al. 2022, OPT: Open Pre-trained Transformer Language Models, https://arxiv.org/abs/2205.01068.
    """

    model_type = "opt"
    base_class = "OPTModel"
    causal_lm_class = "OPTForCausalLM"
    # transformers has no classifier of tokens for it
    heads = ("classes", "spans")
    prefix = "model."
    ignored_suffixes = ("decoder.version",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50_272,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "ffn_dim": 3072,
        "max_position_embeddings": 2048,
        "do_layer_norm_before": True,
        "word_embed_proj_dim": None,
        "num_attention_heads": 12,
        "activation_function": "relu",
        "pad_token_id": 1,
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
        UNNORMED: False,
        "tie_word_embeddings": True,
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
        first, unnormed = config["do_layer_norm_before"], bool(config[UNNORMED])
        width, narrow, biased = config["hidden_size"], config["word_embed_proj_dim"], config["enable_bias"]
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            scheme="learned",
            mixer=BIASED if biased else PLAIN,
            max_length=config["max_position_embeddings"],
            norm="layer" if config["layer_norm_elementwise_affine"] else "nonparametric",
            norm_eps=EPS,
            norm_position="pre" if first else "post",
            # with norms after the sums, there is no other at the end
            final_norm=not (first and unnormed),
            feedforward=activation_kind(config, "activation_function"),
            hidden=config["ffn_dim"],
            bias=("norm", "feedforward") if biased else ("norm",),
            tie_embeddings=config["tie_word_embeddings"],
            embedding_width=None if narrow == width else narrow,
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        need(
            shape.scheme_spec == "learned"
            and shape.mixer_spec in (BIASED, PLAIN)
            and shape.norm in ("layer", "nonparametric")
            and shape.norm_position in ("pre", "post"),
            f"an opt requires scheme learned, mixer {BIASED} or {PLAIN}, norm layer or nonparametric, and "
            "norm_position pre or post",
            f"got {shape.scheme_spec}, {shape.mixer_spec}, {shape.norm}, {shape.norm_position}",
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "ffn_dim": shape.hidden_width,
            "max_position_embeddings": shape.max_length,
            "do_layer_norm_before": shape.norm_position == "pre",
            "word_embed_proj_dim": shape.table_width,
            "num_attention_heads": shape.heads,
            "activation_function": activation_name(shape.feedforward),
            "enable_bias": shape.mixer_spec == BIASED,
            UNNORMED: not shape.final_norm,
            "layer_norm_elementwise_affine": shape.norm == "layer",
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        all_layers, biased = "model.decoder", shape.mixer_spec == BIASED
        learned = shape.norm == "layer"
        rules = [
            TensorRule("tokens.weight", (f"{all_layers}.embed_tokens.weight",)),
            CountedRows("schemes.0.table", (f"{all_layers}.embed_positions.weight",), PADDING),
            *fairseq_rules(f"{all_layers}.layers.{{}}", biased=biased, normed=learned),
        ]
        if learned and shape.norm_position == "pre" and shape.final_norm:
            rules += linear_rules("norm", f"{all_layers}.final_layer_norm", bias=True)
        if shape.table_width != shape.width:
            rules += linear_rules("widen_embeddings", f"{all_layers}.project_in", bias=False)
            rules += linear_rules("narrow_states", f"{all_layers}.project_out", bias=False)
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]

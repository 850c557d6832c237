"""Bloom."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import GroupedQKV, TensorRule, linear_rules
from ordinate.pretrained.decoder_like import DecoderLike

MIXER = "softmax:variant.bias=true"
# with several slices, transformers leaves out the biases of the output projections
SLICED = f"{MIXER},variant.out_bias=false"
SLICED_BIAS = ("norm", "feedforward_in")


class Bloom(DecoderLike):
    """Bloom: ALiBi, and a LayerNorm of the token embeddings.

    Source: BigScience Workshop 2022, https://arxiv.org/abs/2211.05100.
    """

    model_type = "bloom"
    base_class = "BloomModel"
    causal_lm_class = "BloomForCausalLM"
    prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 250_880,
        "hidden_size": 64,
        "n_layer": 2,
        "n_head": 8,
        "layer_norm_epsilon": 1e-5,
        "apply_residual_connection_post_layernorm": False,
        "slow_but_exact": False,
        "pretraining_tp": 1,
        "tie_word_embeddings": True,
    }
    aliases: ClassVar[Mapping[str, str]] = {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Read the width from the name that it has in the released models, and whether outputs are sums of slices."""
        width = config["hidden_size"] if config.get("n_embed") is None else config["n_embed"]
        sliced = config["slow_but_exact"] and config["pretraining_tp"] > 1
        return {**config, "hidden_size": width, "sliced": sliced}

    def shape(self, config: Mapping[str, Any]) -> Shape:
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=config["n_layer"],
            heads=config["n_head"],
            scheme="alibi",
            mixer=SLICED if config["sliced"] else MIXER,
            # its config.json need not name a length: ALiBi has no maximum
            max_length=config.get("seq_length") or 2048,
            norm="layer",
            norm_eps=config["layer_norm_epsilon"],
            norm_position="residual" if config["apply_residual_connection_post_layernorm"] else "pre",
            feedforward="gelu_tanh",
            hidden=4 * config["hidden_size"],
            bias=SLICED_BIAS if config["sliced"] else ("norm", "feedforward"),
            tie_embeddings=config["tie_word_embeddings"],
            embedding_norm=True,
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        need(
            shape.scheme_spec == "alibi"
            and shape.mixer_spec in (MIXER, SLICED)
            and shape.hidden_width == 4 * shape.width
            and shape.norm_position in ("pre", "residual"),
            f"a bloom requires scheme alibi, mixer {MIXER}, a hidden width of 4 * width and norm_position pre or "
            "residual",
            f"got {shape.scheme_spec}, {shape.mixer_spec}, {shape.hidden_width}, {shape.norm_position}",
            "use save_pretrained instead",
        )
        sliced = {"slow_but_exact": True, "pretraining_tp": 2} if shape.mixer_spec == SLICED else {}
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "n_layer": shape.layers,
            "n_head": shape.heads,
            "seq_length": shape.max_length,
            "layer_norm_epsilon": shape.norm_eps,
            "apply_residual_connection_post_layernorm": shape.norm_position == "residual",
            **sliced,
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def ignored(self, shape: Shape) -> tuple[str, ...]:
        return ("self_attention.dense.bias", "mlp.dense_4h_to_h.bias") if shape.mixer_spec == SLICED else ()

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "transformer.h.{}", "blocks.{}"
        whole = shape.mixer_spec != SLICED
        rules = [
            TensorRule("tokens.weight", ("transformer.word_embeddings.weight",)),
            *linear_rules("embedding_norm", "transformer.word_embeddings_layernorm", bias=True),
            *linear_rules("norm", "transformer.ln_f", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.input_layernorm", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.post_attention_layernorm", bias=True),
            *linear_rules(
                f"{here}.mixer.project", f"{there}.self_attention.query_key_value", kind=GroupedQKV, bias=True
            ),
            *linear_rules(f"{here}.mixer.out", f"{there}.self_attention.dense", bias=whole),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.dense_h_to_4h", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.dense_4h_to_h", bias=whole),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]

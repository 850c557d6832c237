"""StableLM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ordinate.core.checks import need
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.pretrained._family import StackedPair, StackedQKV, TensorRule, Weight, linear_rules, need_usual
from ordinate.pretrained.activation_names import HF_GATES, activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.rope_parameters import cut_rope_spec, spec_to_rope_parameters


@dataclass(frozen=True)
class HeadNorms(TensorRule):
    """A vector for each head in the checkpoint, the rows of a matrix here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return torch.stack(list(tensors))

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return list(tensor)


class Stablelm(DecoderLike):
    """StableLM 2: RoPE on a quarter of each head's channels, LayerNorm, gated feed-forward.

    Attention and feed-forward are parallel after a shared norm, and queries and keys normalised, if so set (12B).

    Source: Bellagente et al. 2024, Stable LM 2 1.6B Technical Report, https://arxiv.org/abs/2402.17834.
    """

    model_type = "stablelm"
    base_class = "StableLmModel"
    causal_lm_class = "StableLmForCausalLM"
    # transformers has no head for answers
    heads = ("classes", "token_classes")
    token_classifier = "score"
    prefix = "model."
    ignored_suffixes = ("rotary_emb.inv_freq",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50_304,
        "intermediate_size": 6912,
        "hidden_size": 2560,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "layer_norm_eps": 1e-5,
        "rope_parameters": None,
        "partial_rotary_factor": 0.25,
        "use_qkv_bias": False,
        "qk_layernorm": False,
        "use_parallel_residual": False,
        "tie_word_embeddings": False,
        "token_classification_bias": True,
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width, heads = config["hidden_size"], config["num_attention_heads"]
        # of another width of a head only the rotation would know
        need_usual(self, config, head_dim=width // heads)
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config["num_key_value_heads"],
            scheme=cut_rope_spec(config, width // heads),
            mixer=_mixer(config["layer_norm_eps"], biased=config["use_qkv_bias"], normed=config["qk_layernorm"]),
            max_length=config["max_position_embeddings"],
            norm="layer",
            norm_eps=config["layer_norm_eps"],
            norm_position="shared" if config["use_parallel_residual"] else "pre",
            feedforward=activation_kind(config, "hidden_act", HF_GATES),
            hidden=config["intermediate_size"],
            bias=("norm",),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        choices = [(biased, normed) for biased in (False, True) for normed in (False, True)]
        mixers = {
            _mixer(shape.norm_eps, biased=biased, normed=normed): (biased, normed) for biased, normed in choices
        }
        need(
            shape.mixer_spec in mixers and shape.norm_position in ("shared", "pre") and shape.feedforward in GATED,
            f"a stablelm requires the mixer {' or '.join(mixers)}, norm_position shared or pre, and a gated "
            "feedforward",
            f"got {shape.mixer_spec}, {shape.norm_position}, {shape.feedforward}",
            "use save_pretrained instead",
        )
        biased, normed = mixers[shape.mixer_spec]
        parameters = spec_to_rope_parameters(shape.scheme_spec, shape.bindable_sizes["head_width"], partial=True)
        return {
            "vocab_size": shape.vocabulary,
            "intermediate_size": shape.hidden_width,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads if shape.kv_heads is None else shape.kv_heads,
            "hidden_act": activation_name(shape.feedforward, HF_GATES),
            "max_position_embeddings": shape.max_length,
            "layer_norm_eps": shape.norm_eps,
            "rope_parameters": {"partial_rotary_factor": 1.0} | parameters,
            "use_qkv_bias": biased,
            "qk_layernorm": normed,
            "use_parallel_residual": shape.norm_position == "shared",
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "model.layers.{}", "blocks.{}"
        parts = [f"{there}.self_attn.{part}_proj" for part in "qkv"]
        gates = [f"{there}.mlp.{part}_proj" for part in ("gate", "up")]
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            *linear_rules("norm", "model.norm", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.input_layernorm", bias=True),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias="bias=true" in shape.mixer_spec),
            *linear_rules(f"{here}.mixer.out", f"{there}.self_attn.o_proj", bias=False),
            *linear_rules(f"{here}.feedforward.widen", *gates, kind=StackedPair, bias=False),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.down_proj", bias=False),
        ]
        if shape.norm_position == "pre":
            rules += linear_rules(f"{here}.feedforward_norm", f"{there}.post_attention_layernorm", bias=True)
        if "qk_norm" in shape.mixer_spec:
            counts = {"q": shape.heads, "k": shape.heads if shape.kv_heads is None else shape.kv_heads}
            for x, count in counts.items():
                names = tuple(f"{there}.self_attn.{x}_layernorm.norms.{head}.weight" for head in range(count))
                rules.append(HeadNorms(f"{here}.mixer.{x}_norm.weight", names))
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]


def _mixer(norm_eps: float | None, *, biased: bool, normed: bool) -> str:
    """Return the mixer, with biases of the QKV projection and norms of queries and keys if set."""
    options = ["variant.bias=true", "variant.out_bias=false"] if biased else []
    kind = ["variant.qk_norm=true", "variant.qk_norm_kind=layer_per_head", f"variant.norm_eps={norm_eps}"]
    options += kind if normed else []
    return f"softmax:{','.join(options)}" if options else "softmax"

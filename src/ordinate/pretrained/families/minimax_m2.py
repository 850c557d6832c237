"""MiniMax-M2."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.moe_like import CHOSEN, COUNT, FUSED, MoeLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters


class MinimaxM2(MoeLike):
    """MiniMax-M2: experts chosen by sigmoids, RoPE on a part of each head, norms of all queries and keys together.

    Source: MiniMax 2025, MiniMax-M2, https://huggingface.co/MiniMaxAI/MiniMax-M2.
    """

    model_type = "minimax_m2"
    base_class = "MiniMaxM2Model"
    causal_lm_class = "MiniMaxM2ForCausalLM"
    # transformers has no other
    heads = ()
    aliases: ClassVar[Mapping[str, str]] = {"num_experts": COUNT}
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 200_064,
        "hidden_size": 3072,
        "intermediate_size": 1536,
        "num_hidden_layers": 62,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 196_608,
        "rope_theta": 5e6,
        COUNT: 256,
        CHOSEN: 8,
    }
    expert_layer = "block_sparse_moe"
    gate_names = ("w1", "w3")
    out_name = "w2"
    qk_norm = True
    qk_norm_across = True

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Read the share of rotated channels from their number, which published files have."""
        rotated = config.get("rotary_dim")
        whole = rotated is None or (isinstance(rotated, int) and rotated > 0)
        need(
            whole, "rotary_dim must be a whole number above zero", f"got {shown(rotated)}", "load another checkpoint"
        )
        alone = rotated is not None and "partial_rotary_factor" not in config
        must = "rotary_dim without partial_rotary_factor needs a head_dim"
        need(not alone or bool(config["head_dim"]), must, "got head_dim=None", "add it to config.json")
        share = {"partial_rotary_factor": rotated / config["head_dim"]} if alone else {}
        return {**super().complete_config(config, names), **share}

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        parameters = rope_parameters(config, partial=True)
        return rope_spec(parameters, head_width, config["max_position_embeddings"], partial=True)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        return {"rope_parameters": spec_to_rope_parameters(shape.scheme_spec, head_width, partial=True)}

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        count = self.expert_count(config)
        return {"experts": ExpertOptions(count, config[CHOSEN], scores="sigmoid", choice_bias=True)}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options, must = shape.experts, f"a {self.model_type} has experts with scores='sigmoid' and a choice_bias"
        fits = options is not None and options.scores == "sigmoid" and options.choice_bias
        need(fits, must, f"got experts={options}", "use save_pretrained instead")
        return super().expert_config(shape)

    def expert_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        place = "mlp" if self.settings.get(FUSED, False) else self.expert_layer
        there = f"model.layers.{layer}.{place}.e_score_correction_bias"
        bias = TensorRule(f"blocks.{layer}.feedforward.choice_bias", (there,))
        return [*super().expert_rules(shape, layer), bias]

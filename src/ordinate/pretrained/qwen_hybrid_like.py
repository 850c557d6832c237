"""Base classes of decoders like Qwen3-Next: gated DeltaNet in most layers, attention with gates in the others."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.mixers._delta_rule import DeltaRuleSizes
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.delta_hybrid_like import (
    HEADS,
    KEY_HEADS,
    KEY_WIDTH,
    TAPS,
    VALUE_WIDTH,
    DeltaHybridLike,
)
from ordinate.pretrained.grouped_rows import GatedQKV
from ordinate.pretrained.hybrid_like import LINEAR, TYPES
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters
from ordinate.pretrained.sliding_windows import FULL

EVERY = "full_attention_interval"
"""The key of n, where every n-th layer has attention."""


class QwenHybridLike(DeltaHybridLike):
    """Decoders like Qwen3-Next: zero-centred norms, attention with gates, QK-norm and RoPE on a part of each head.

    Must: as `DeltaHybridLike`.
    """

    usual_hybrid: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "max_position_embeddings": 32_768,
        "attention_bias": False,
        "head_dim": 256,
        "partial_rotary_factor": 0.25,
        TYPES: None,
        EVERY: 4,
        TAPS: 4,
        KEY_WIDTH: 128,
        VALUE_WIDTH: 128,
        KEY_HEADS: 16,
        HEADS: 32,
    }
    """Default values that these families share."""
    optional_biases = ("attention_bias",)
    qk_norm = True
    zero_centred = True
    output_gate, stacked = True, GatedQKV

    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        return [LINEAR if (layer + 1) % config[EVERY] else FULL for layer in range(config["num_hidden_layers"])]

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        parameters = rope_parameters(config, partial=True)
        return rope_spec(parameters, head_width, config["max_position_embeddings"], partial=True)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters = spec_to_rope_parameters(shape.scheme_spec, head_width, partial=True)
        # without it, the factor is another one
        return {"rope_parameters": {"partial_rotary_factor": 1.0} | parameters}

    def recurrent_config(self, shape: Shape, sizes: DeltaRuleSizes) -> dict[str, Any]:
        must = f"a gated_deltanet mixer of a {self.model_type} has the norm_eps of the model, no negative_eigenvalues"
        own = f"variant.norm_eps={sizes.norm_eps} and negative_eigenvalues={sizes.negative_eigenvalues}"
        came = f"got norm_eps={shape.norm_eps}, {own}"
        fits = sizes.norm_eps == shape.norm_eps and not sizes.negative_eigenvalues
        need(fits, must, came, "use save_pretrained instead")
        return super().recurrent_config(shape, sizes)

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint without a place here is ignored: one that predicts later tokens."""
        return super().ignores(name, shape) or name.startswith("mtp")


class Qwen35Like(QwenHybridLike):
    """Language models of Qwen3.5: the projections of a gated DeltaNet are tensors of their own.

    Must: as `DeltaHybridLike`.
    """

    def projection_rules(self, sizes: DeltaRuleSizes, there: str, here: str) -> Sequence[TensorRule]:
        named = {"project": "in_proj_qkv", "gate": "in_proj_z", "rate": "in_proj_b", "step": "in_proj_a"}
        return [TensorRule(f"{here}.{ours}.weight", (f"{there}.{name}.weight",)) for ours, name in named.items()]

    def stored_name(self, theirs: str, names: Collection[str]) -> str:
        """Return a tensor's name in a checkpoint; that of the whole model has its language model in a part."""
        part = theirs.replace(self.prefix, f"{self.prefix}language_model.", 1)
        name, inner = (super(Qwen35Like, self).stored_name(each, names) for each in (theirs, part))
        return inner if name not in names and inner in names else name

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint without a place here is ignored: one of images, or of later tokens."""
        return super().ignores(name, shape) or name.startswith("model.visual")

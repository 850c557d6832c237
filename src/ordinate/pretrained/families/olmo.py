"""OLMo."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.llama_like import LlamaLike

# not a key of its config.json
EPS = {"rms_norm_eps": 1e-5}
CLIP = "variant.clip_qkv="


class Olmo(LlamaLike):
    """OLMo: Llama with LayerNorm without weights and biases; queries, keys and values are clipped in some models.

    Source: Groeneveld et al. 2024, OLMo: Accelerating the Science of Language Models,
        https://arxiv.org/abs/2402.00838.
    """

    model_type = "olmo"
    base_class = "OlmoModel"
    causal_lm_class = "OlmoForCausalLM"
    heads = ("classes",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 50_304,
        "intermediate_size": 11_008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "pad_token_id": 1,
        "attention_bias": False,
        "clip_qkv": None,
    }
    optional_biases = ("attention_bias",)
    norm = "nonparametric"
    norms: ClassVar[Mapping[str, str]] = {}

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the epsilon of the norms."""
        return {**config, **EPS}

    def shape(self, config: Mapping[str, Any]) -> Shape:
        shape, limit = super().shape(config), config["clip_qkv"]
        if limit is None:
            return shape
        need(limit > 0, "clip_qkv must be above zero", f"got {shown(limit)}", "correct it, or leave it out")
        return replace(shape, mixer=f"{shape.mixer}{',' if ':' in str(shape.mixer) else ':'}{CLIP}{limit}")

    def config(self, shape: Shape) -> dict[str, Any]:
        plain, limit = _unclipped(shape)
        written = super().config(plain) | {"clip_qkv": limit}
        return {name: value for name, value in written.items() if name not in EPS}

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        return [rule for rule in super().rules(_unclipped(shape)[0]) if rule.ours != "norm.weight"]


def _unclipped(shape: Shape) -> tuple[Shape, float | None]:
    """Return the shape without clipping, and the limit; None: there was none."""
    name, _, given = shape.mixer_spec.partition(":")
    options = given.split(",")
    limits = [option.removeprefix(CLIP) for option in options if option.startswith(CLIP)]
    if len(shape.mixer_spec.entries) > 1 or not limits:
        return shape, None
    rest = ",".join(option for option in options if not option.startswith(CLIP))
    return replace(shape, mixer=f"{name}:{rest}" if rest else name), float(limits[0])

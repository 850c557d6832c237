"""GPT-BigCode: StarCoder and SantaCoder."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.feedforward import FeedForwardKind
from ordinate.models.shape import Shape
from ordinate.pretrained._family import GroupedQKV
from ordinate.pretrained.activation_names import HF_ACTIVATIONS
from ordinate.pretrained.gpt2_like import MIXER, Gpt2Like


class GptBigcode(Gpt2Like):
    """GPT-BigCode: GPT-2 whose query heads share one key and value head, unless `multi_query` is false.

    Source: Li et al. 2023, StarCoder: may the source be with you!, https://arxiv.org/abs/2305.06161.
    """

    model_type = "gpt_bigcode"
    base_class = "GPTBigCodeModel"
    causal_lm_class = "GPTBigCodeForCausalLM"
    # transformers has no head for answers
    heads = ("classes", "token_classes")
    defaults: ClassVar[Mapping[str, Any]] = {
        **Gpt2Like.usual,
        "activation_function": "gelu_pytorch_tanh",
        "multi_query": True,
    }
    # of the names for the same formula, this one is usual
    activations: ClassVar[Mapping[str, FeedForwardKind]] = {"gelu_pytorch_tanh": "gelu_tanh", **HF_ACTIVATIONS}
    projection = GroupedQKV

    def mixers(self, layers: int, head_width: int) -> Sequence[tuple[dict[str, bool], str]]:
        return [
            ({"scale_attn_weights": True}, MIXER),
            ({"scale_attn_weights": False}, f"{MIXER},variant.scale=1.0"),
        ]

    def kv_heads(self, config: Mapping[str, Any]) -> int:
        crossed = config["add_cross_attention"] and config["multi_query"]
        must, came = "add_cross_attention needs multi_query=False", f"got multi_query={config['multi_query']}"
        # transformers does not run it
        need(not crossed, must, came, "load another checkpoint")
        return 1 if config["multi_query"] else config["n_head"]

    def kv_config(self, shape: Shape) -> dict[str, Any]:
        heads = shape.heads if shape.kv_heads is None else shape.kv_heads
        must, came = f"a {self.model_type} has one key head, or one for each query head", f"got {heads}"
        need(heads in (1, shape.heads), must, f"{came} for {shape.heads}", "use save_pretrained instead")
        return {"multi_query": heads == 1}

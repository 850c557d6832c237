"""nanochat."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.models.feedforward import FeedForwardKind
from ordinate.models.shape import Shape
from ordinate.pretrained._family import LAYER_PLACEHOLDER, StackedQKV, TensorRule, Weight, linear_rules
from ordinate.pretrained.activation_names import HF_ACTIVATIONS
from ordinate.pretrained.llama_like import LlamaLike


class TurnedBackQKV(StackedQKV):
    """Queries, keys and values, of which the former two are rotated by negative angles in the checkpoint's model.

    With the halves of each head exchanged, the same angles are positive.
    """

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return super().read([*(_exchanged(part, shape) for part in tensors[:2]), tensors[2]], shape)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        q, k, v = super().write(tensor, shape)
        return [_exchanged(q, shape), _exchanged(k, shape), v]


class Nanochat(LlamaLike):
    """nanochat: norms without weights, of token embeddings too, and of queries and keys after RoPE, which turns back.

    Its feed-forward has no gate, by default a squared ReLU; logits have a soft cap.

    Source: Karpathy 2025, nanochat, https://github.com/karpathy/nanochat.
    """

    model_type = "nanochat"
    base_class = "NanoChatModel"
    causal_lm_class = "NanoChatForCausalLM"
    # transformers has no other
    heads = ()
    norm = "nonparametric_rms"
    qk_norm = True
    qk_norm_kind = "nonparametric_rms"
    qk_norm_after = True
    stacked = TurnedBackQKV
    gated = False
    gates: ClassVar[Mapping[str, FeedForwardKind]] = HF_ACTIVATIONS
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 50_304,
        "hidden_size": 768,
        "intermediate_size": 8192,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "hidden_act": "relu2",
        "final_logit_softcapping": 15.0,
        "attention_bias": False,
        "pad_token_id": 1,
    }
    optional_biases = ("attention_bias",)

    def scales(self, config: Mapping[str, Any]) -> dict[str, Any]:
        cap = config["final_logit_softcapping"]
        return {"embedding_norm": True, "logit_softcap": None if cap is None else float(cap)}

    def scale_config(self, shape: Shape) -> dict[str, Any]:
        return {"final_logit_softcapping": shape.logit_softcap}

    def feedforward_rules(self, shape: Shape, layer: str = LAYER_PLACEHOLDER) -> Sequence[TensorRule]:
        there, here = f"model.layers.{layer}.mlp", f"blocks.{layer}.feedforward"
        return [
            *linear_rules(f"{here}.widen", f"{there}.fc1", bias=False),
            *linear_rules(f"{here}.narrow", f"{there}.fc2", bias=False),
        ]


def _exchanged(rows: Weight, shape: Shape) -> Weight:
    """Return the rows of queries or keys with the halves of each head exchanged."""
    halves = rows.unflatten(0, (-1, 2, shape.bindable_sizes["head_width"] // 2))
    return halves.flip(1).flatten(0, 2)

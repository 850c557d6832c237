"""Base class of Gemma and its successors."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.feedforward import FeedForwardKind
from ordinate.models.shape import Shape
from ordinate.pretrained._family import need_usual
from ordinate.pretrained.activation_names import HF_GATES
from ordinate.pretrained.llama_like import LlamaLike, unusual_scale
from ordinate.pretrained.sliding_windows import layer_types


class GemmaLike(LlamaLike):
    """Gemma-like decoders: Llama with zero-centred norms, GEGLU and token embeddings times the root of the width.

    Must: as `LlamaLike`.
    """

    zero_centred = True
    optional_biases = ("attention_bias",)
    heads = ("classes", "token_classes")
    # of the names for the same formula, this one is usual
    gates: ClassVar[Mapping[str, FeedForwardKind]] = {"gelu_pytorch_tanh": "geglu_tanh", **HF_GATES}
    usual: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 256_000,
        "head_dim": 256,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "pad_token_id": 0,
        "rope_parameters": None,
        "attention_bias": False,
        "use_bidirectional_attention": None,
        "tie_word_embeddings": True,
        "token_classification_bias": True,
    }
    """Default values that Gemma-like families share."""

    def shape(self, config: Mapping[str, Any]) -> Shape:
        need_usual(self, config, use_bidirectional_attention=False)
        return super().shape(config)

    def scales(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"embedding_scale": config["hidden_size"] ** 0.5, "round_embedding_scale": True}


class PeriGemma(GemmaLike):
    """Gemma 2 and 3: norms before and after each branch, a factor of the scores, windows in some layers.

    Must: as `GemmaLike`, and `windows`.
    """

    activation_key = "hidden_activation"
    norm_position = "peri"
    norms: ClassVar[Mapping[str, str]] = {
        "mixer_norm": "input_layernorm",
        "mixer_out_norm": "post_attention_layernorm",
        "feedforward_norm": "pre_feedforward_layernorm",
        "feedforward_out_norm": "post_feedforward_layernorm",
    }
    usual: ClassVar[Mapping[str, Any]] = {
        **GemmaLike.usual,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "layer_types": None,
    }
    """Default values that Gemma 2 and 3 share."""
    score_options = ("scale",)
    heads_divide_width = True

    def scores(self, config: Mapping[str, Any], head_width: int) -> dict[str, float | None]:
        return {"scale": unusual_scale(config["query_pre_attn_scalar"] ** -0.5, head_width)}

    def score_config(self, scores: Mapping[str, float | None], head_width: int) -> dict[str, Any]:
        scale = scores["scale"]
        whole = head_width if scale is None else round(scale**-2)
        need(
            scale is None or (whole > 0 and whole**-0.5 == scale),
            f"the mixer of a {self.model_type} multiplies scores by 1 / sqrt(query_pre_attn_scalar), a whole number",
            f"got the mixer option scale={scale}",
            "choose such a scale, or use save_pretrained",
        )
        return {"query_pre_attn_scalar": whole}

    def scales(self, config: Mapping[str, Any]) -> dict[str, Any]:
        cap = config["final_logit_softcapping"]
        return {**super().scales(config), "logit_softcap": None if cap is None else float(cap)}

    def scale_config(self, shape: Shape) -> dict[str, Any]:
        return {"final_logit_softcapping": shape.logit_softcap}

    def window_config(self, shape: Shape) -> dict[str, Any]:
        # transformers needs a number, even where no layer has a window
        return {"sliding_window": layer_types(shape)["sliding_window"] or self.defaults["sliding_window"]}

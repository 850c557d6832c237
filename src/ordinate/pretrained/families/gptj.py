"""GPT-J."""

from collections.abc import Sequence

from ordinate.models.shape import Shape
from ordinate.pretrained._family import StackedQKV, TensorRule, linear_rules
from ordinate.pretrained.gptj_like import GptjLike


class Gptj(GptjLike):
    """GPT-J: RoPE on interleaved channel pairs, parallel attention and feed-forward after a shared norm.

    Source: Wang and Komatsuzaki 2021, GPT-J-6B, https://github.com/kingoflolz/mesh-transformer-jax.
    """

    model_type = "gptj"
    base_class = "GPTJModel"
    causal_lm_class = "GPTJForCausalLM"
    # transformers has no classifier of tokens for it
    heads = ("classes", "spans")

    def projection_rules(self, shape: Shape) -> Sequence[TensorRule]:
        parts = [f"transformer.h.{{}}.attn.{part}_proj" for part in "qkv"]
        return linear_rules("blocks.{}.mixer.project", *parts, kind=StackedQKV, bias=False)

"""Llama."""

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike


class Llama(LlamaLike):
    """Llama 1 to 3, and models with the same `model_type`.

    Source: Touvron et al. 2023, https://arxiv.org/abs/2302.13971.
    """

    model_type = "llama"

    def architecture(self, shape: Shape) -> str:
        return "LlamaForCausalLM"

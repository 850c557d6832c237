"""Llama."""

from ordinate.checkpoints.llama_like import LlamaLike
from ordinate.models.shape import Shape


class Llama(LlamaLike):
    """Llama 1 to 3, and the many models that share its code.

    Source: Touvron et al. 2023, https://arxiv.org/abs/2302.13971.
    """

    model_type = "llama"

    def architecture(self, shape: Shape) -> str:
        """A language model."""
        return "LlamaForCausalLM"

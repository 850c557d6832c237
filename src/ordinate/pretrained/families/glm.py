"""GLM."""

from ordinate.pretrained.glm_like import GlmLike


class Glm(GlmLike):
    """GLM: Llama with RoPE on interleaved pairs of half of each head's channels, and biases of the QKV projections.

    Source: Team GLM 2024, ChatGLM: A Family of Large Language Models from GLM-130B to GLM-4 All Tools,
        https://arxiv.org/abs/2406.12793.
    """

    model_type = "glm"
    base_class = "GlmModel"
    causal_lm_class = "GlmForCausalLM"

"""Cohere."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained.cohere_like import CohereLike
from ordinate.pretrained.rope_parameters import interleaved, rope_parameters, rope_spec, spec_to_rope_parameters


class Cohere(CohereLike):
    """Cohere (Command R and R+, Aya 23): RoPE on interleaved channel pairs, and QK-norm in the largest.

    Source: Cohere 2024, Command R, https://huggingface.co/CohereLabs/c4ai-command-r-v01.
    """

    model_type = "cohere"
    base_class = "CohereModel"
    causal_lm_class = "CohereForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {**CohereLike.usual, "rope_theta": 5e5, "use_qk_norm": False}
    qk_norm_key = "use_qk_norm"

    def schemes(self, config: Mapping[str, Any], head_width: int) -> str:
        return interleaved(rope_spec(rope_parameters(config), head_width, config["max_position_embeddings"]))

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        came = f"got sliding_windows={shape.sliding_windows}"
        need(set(shape.sliding_windows) == {None}, f"a {self.model_type} has no windows", came, "remove them")
        return {"rope_parameters": spec_to_rope_parameters(shape.scheme_spec, head_width)}

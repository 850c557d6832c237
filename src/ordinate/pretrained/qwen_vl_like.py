"""Base classes of Qwen-VL: models of texts and images, whose language models are those of families of texts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.core.option_values import is_value_of
from ordinate.models.shape import Shape
from ordinate.pretrained._wrapper import TEXT, Wrapper

SECTION = "mrope_section"
"""The key of the numbers of channel pairs for each axis."""
ROPE_KEYS = ("rope_parameters", "rope_scaling", "rope_theta")
WINDOWS = ("use_sliding_window", "sliding_window", "max_window_layers", "layer_types")
"""Keys of sliding windows."""


class QwenVlLike(Wrapper):
    """Qwen-VL: a multimodal RoPE rotates each channel pair by the position on one of three axes.

    The axes are time, height and width. Positions of a text are the same on all of them, so that its RoPE is a plain
    one, and the language model one of a family of texts.

    Must: besides those of `Wrapper`, `family` and `text_settings`.
    May: `fixed_settings`.
    """

    text_type_fixed = True
    tied = False
    family: ClassVar[str]
    """The family of the language model."""
    text_settings: ClassVar[Mapping[str, Any]]
    """Default values of the settings of the language model, those that the family reads."""
    fixed_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of the family that the language model does not have."""

    def text_config(self, given: Mapping[str, Any]) -> dict[str, Any]:
        own = super().text_config(given)
        rope = own.pop("rope_scaling", None) or own.pop("rope_parameters", None)
        told = {"rope_parameters": self.rope_config(rope), "model_type": self.family}
        return {**self.text_settings, **own, **self.fixed_settings, **told}

    def rope_config(self, rope: Any) -> Any:
        """Return the `rope_parameters` of the family."""
        return rope

    def text_shape(self, shape: Shape, text: Mapping[str, Any]) -> Shape:
        rope = text["rope_parameters"] or {}
        if SECTION in rope:
            came, remedy = f"got {shown(rope[SECTION])}", "correct it, or download the file again"
            must = f"{SECTION} of rope_parameters must be a list of whole numbers, for three axes or more"
            sizes = rope[SECTION] if is_value_of(rope[SECTION], list[int]) else []
            need(len(sizes) >= 3 and min(sizes) >= 0, must, came, remedy)
        return super().text_shape(shape, text)


class Qwen2VlLike(QwenVlLike):
    """Qwen2-VL and Qwen2.5-VL: the language model is a qwen2; the axes have consecutive channel pairs.

    Their published config.json files have its settings beside those of the whole, and no text_config.

    Source: Wang et al. 2024, https://arxiv.org/abs/2409.12191.
    """

    text_ties = True
    family = "qwen2"
    text_settings: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 152_064,
        "hidden_size": 8192,
        "intermediate_size": 29_568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "hidden_act": "silu",
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 80,
        "layer_types": None,
    }
    usual_sections: ClassVar[tuple[int, ...]] = (16, 24, 24)
    """The numbers of channel pairs for each axis, where config.json does not say."""

    def text_config(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if given.get(TEXT) is not None:
            return super().text_config(given)
        own = {name: given[name] for name in (*self.text_settings, *ROPE_KEYS) if name in given}
        return super().text_config({**given, TEXT: own})

    def rope_config(self, rope: Any) -> Any:
        plain = isinstance(rope, dict) and rope.get("rope_type", rope.get("type")) == "mrope"
        return {**rope, "rope_type": "default"} if plain else rope

    def text_shape(self, shape: Shape, text: Mapping[str, Any]) -> Shape:
        found = super().text_shape(shape, text)
        sizes = (text["rope_parameters"] or {}).get(SECTION, self.usual_sections)
        width = shape.head_width or shape.width // shape.heads
        must = f"{SECTION} of rope_parameters must have each of the {width // 2} channel pairs of a head"
        need(2 * sum(sizes) == width, must, f"got {list(sizes)}", "correct it, or download the file again")
        return found

    def text_name(self, name: str, prefix: str) -> str | None:
        # in files of earlier versions the language model is beside `visual`
        early = name.startswith("model.") and not name.startswith("model.visual.")
        found = super().text_name(name, prefix)
        return name if found is None and early else found


class Qwen3VlLike(QwenVlLike):
    """Qwen3-VL: the axes take turns at channel pairs, and no layer has a sliding window.

    Source: Bai et al. 2025, https://arxiv.org/abs/2511.21631.
    """

    fixed_settings: ClassVar[Mapping[str, Any]] = dict.fromkeys(WINDOWS) | {"use_sliding_window": False}

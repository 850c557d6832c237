"""Register Ordinate's attention with transformers."""

from typing import Any

from ordinate.core.checks import need
from ordinate.pretrained.hf.attention import attention_forward
from ordinate.pretrained.hf.mask import create_mask

NAME = "ordinate"
"""Name of the implementation: `attn_implementation="ordinate"`."""


def register() -> None:
    """Register Ordinate as an attention implementation of transformers.

        AutoModel.from_pretrained(folder, attn_implementation="ordinate")

    Registers both the attention function and the mask function. With the attention function alone, transformers would
    pass no mask to a causal model, which would then silently attend to future tokens.

    Raises:
        ImportError: transformers is not installed.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, create_mask)


def use(model: Any) -> None:
    """Switch a loaded transformers model to Ordinate's attention.

    Args:
        model: the model; `model.set_attn_implementation("sdpa")` switches back.

    Raises:
        TypeError: not a transformers model.
        ValueError: the model's code does not use the attention interface of transformers (GPT-J, Bloom, MPT, DeBERTa
            among others).
    """
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"model must be a transformers PreTrainedModel; got {type(model).__name__}; load one with from_pretrained"
        )
    # transformers itself only logs a warning and leaves the model unchanged
    need(
        model._can_set_attn_implementation(),
        "the model must use the attention interface of transformers",
        f"{type(model).__name__} has its own attention code",
        "convert it with ordinate.load if `ordinate list families` lists it",
    )
    register()
    model.set_attn_implementation(NAME)

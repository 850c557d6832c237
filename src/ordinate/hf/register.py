"""Make Ordinate's attention known to transformers."""

from typing import Any

from ordinate.checks import need
from ordinate.hf.attention import attention
from ordinate.hf.mask import mask

NAME = "ordinate"
"""What transformers calls it: `attn_implementation="ordinate"`."""


def register() -> None:
    """Let models of transformers compute their attention here.

        AutoModel.from_pretrained(folder, attn_implementation="ordinate")

    Both halves are made known: the attention, and the function that makes its masks. With the first alone a model
    that reads from left to right would be handed no mask, and see what comes after, without a word.

    Raises:
        ImportError: transformers is not installed.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)


def use(model: Any) -> None:
    """Let this model of transformers compute its attention here, from now on.

    Args:
        model: one that is made already; `model.set_attn_implementation("sdpa")` undoes it.

    Raises:
        TypeError: no model of transformers.
        ValueError: a model whose code computes attention by itself (GPT-J, Bloom, MPT, DeBERTa among them).
    """
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"a model of transformers is needed; got {type(model).__name__}; load one by from_pretrained")
    # transformers would only log a line, and leave the model as it is
    need(
        model._can_set_attn_implementation(),
        "the code of the model must leave its attention to transformers",
        f"{type(model).__name__} computes it by itself",
        "load it as ours, if `ordinate list families` has it",
    )
    register()
    model.set_attn_implementation(NAME)

"""Inputs of the lab: a text, token ids, images, or several batches of these."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from ordinate.core.checks import need
from ordinate.probing._adapter import Inputs, ModelAdapter

ModelInput = Inputs | Tensor | str
"""A batch: inputs, token ids (batch, tokens), images (batch, channels, rows, columns), or a text."""


# what they read ends without a special token: it is continued
TARGETS = ("decoder", "cross-attention")


def model_inputs(model: ModelAdapter, given: object) -> Inputs:
    """Return the inputs of one forward pass.

    Args:
        model: the model; a text is encoded by its tokenizer, with its special tokens (BOS, [CLS] ... [SEP]).
        given: the batch.

    Raises:
        ValueError: a tensor of another shape, or ids beyond the vocabulary.
        TypeError: none of these.
        NotApplicable: a text for a model without a tokenizer.
    """
    if isinstance(given, str):
        given = encode_text(model, given)
    if isinstance(given, Inputs):
        return given
    if not isinstance(given, Tensor):
        raise TypeError(
            "inputs must be a text, token ids, images or Inputs; "
            f"got {type(given).__name__}; give a tensor of shape (batch, tokens)"
        )
    if given.is_floating_point():
        shaped = given.ndim == 4
        need(shaped, "images are (batch, channels, rows, columns)", f"got {tuple(given.shape)}", "reshape them")
        return Inputs(images=given)
    shaped = given.ndim == 2 and given.numel() > 0
    need(shaped, "token ids are (batch, tokens)", f"got shape {tuple(given.shape)}", "give one text or more")
    size = model.info.vocabulary
    inside = bool(((given >= 0) & (given < size)).all())
    need(
        inside or not size,
        f"token ids of {model.info.name} are 0 to {size - 1}",
        lambda: f"got {int(given.min())} to {int(given.max())}",
        "use the tokenizer of the model",
    )
    return Inputs(given.long())


def batches(model: ModelAdapter, given: ModelInput | Iterable[ModelInput]) -> Iterator[Inputs]:
    """Yield the inputs of each forward pass."""
    several = given if isinstance(given, Iterable) and not isinstance(given, str | Tensor) else [given]
    for one in several:
        yield model_inputs(model, one)


def encode_text(model: ModelAdapter, text: str) -> Tensor:
    """Return the token ids (1, tokens) of a text, with the special tokens that the model reads texts with.

    Raises:
        ValueError: an empty text.
        NotApplicable: the model has no tokenizer.
    """
    ids, facts = model.tokenize(text).long(), model.info
    need(len(ids) > 0, "a text must have a token or more", f"got {text!r}", "give a sentence")
    last = None if model.tokenizer is None or facts.kind in TARGETS else model.tokenizer.suffix_token
    parts = [torch.tensor([token]) for token in (facts.first_token,) if token is not None]
    parts += [ids, *(torch.tensor([token]) for token in (last,) if token is not None)]
    return torch.cat(parts)[None]

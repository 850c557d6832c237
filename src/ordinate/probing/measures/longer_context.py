"""Loss of the same tokens of one document read from its beginning, and from no further back than in training."""

import torch
from jaxtyping import Float
from numpy import ndarray

from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing.measures.perturbation_loss import token_losses
from ordinate.probing.measures.samples import Sample


def token_losses_by_position(subject: ModelAdapter, chosen: Sample) -> Float[ndarray, "texts places"]:
    """Loss of each token from the third on [nats].

    Raises:
        NotApplicable: the model does not predict the next token.
    """
    found = []
    for rows in chosen.batches(subject.info):
        given = chosen.inputs(rows)
        logits = subject.forward(given).logits
        if logits is None or given.ids is None:
            raise NotApplicable("the model does not predict the next token")
        found.append(token_losses(logits[:, :-1], given.ids[:, 1:])[:, 1:].double().cpu())
    return torch.cat(found).numpy()


def windowed_losses(subject: ModelAdapter, chosen: Sample, window: int) -> Float[ndarray, "texts places"]:
    """Loss of each token of a text that is read in windows, from the middle of the first window on [nats].

    Windows overlap by half, and each scores its second half: every token has at least half a window of context, all
    of it from its own document. The first token of the model (BOS) begins each window.

    Args:
        subject: the model.
        chosen: the texts; tokens beyond the last whole window are left out.
        window: tokens of a window.

    Raises:
        NotApplicable: the model does not predict the next token.
    """
    if chosen.ids is None:
        raise NotApplicable("images are not read token by token")
    body, front = chosen.ids[:, chosen.fixed :], chosen.ids[:, None, : chosen.fixed]
    half = half_window(chosen, window)
    cut = body.unfold(1, 2 * half, half)
    texts, windows, _ = cut.shape
    rows = torch.cat([front.expand(-1, windows, -1), cut], 2).flatten(0, 1)
    losses = token_losses_by_position(subject, Sample(rows, None, chosen.fixed, None))
    return losses[:, -half:].reshape(texts, windows * half)


def half_window(chosen: Sample, window: int) -> int:
    """Tokens of half a window, without the first token of the model."""
    return (window - chosen.fixed) // 2


def increase_by_context(
    whole: Float[ndarray, "texts places"], windowed: Float[ndarray, "texts scored"], chosen: Sample, window: int
) -> Float[ndarray, "texts scored"]:
    """Loss of each token read from the beginning of its text, less that of the same token read from a window.

    Args:
        whole: from `token_losses_by_position`.
        windowed: from `windowed_losses`, of the same texts.
        chosen: the texts.
        window: tokens of a window.
    """
    # the first number of `whole` is the loss of the third token
    first = chosen.fixed + half_window(chosen, window) - 2
    return whole[:, first : first + windowed.shape[1]] - windowed

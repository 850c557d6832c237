"""Token embeddings narrower than the residual stream: the linear map that takes them to its width."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ordinate.core.shapes import Tokens
from ordinate.probing.instrumentation.patching import patched_output


def find_widening(
    part: nn.Module, tokens: nn.Module, ids: Tensor, width: int, stream: Callable[[], Tokens]
) -> nn.Linear | None:
    """Find the linear map that takes token embeddings to the width of the model (DeBERTa, OPT).

    It is one behind which the embeddings, taken through it, can be added in place of those before it: nothing between
    the two may be other than linear.

    Args:
        part: the model.
        tokens: the token embedding.
        ids: the texts that `stream` reads.
        width: width of the residual stream.
        stream: runs the model and returns the residual stream after the last layer.

    Returns:
        The map; None if there is none, as where a norm of the narrow vectors comes first (ELECTRA, ALBERT).
    """
    plain, narrow = stream(), tokens(ids)
    sizes = narrow.shape[-1], width
    for module in part.modules():
        if not isinstance(module, nn.Linear) or (module.in_features, module.out_features) != sizes:
            continue
        with ExitStack() as changes:
            for change in replaced_embeddings(tokens, module, linear(narrow, module.weight)):
                changes.enter_context(change)
            again = stream()
        # a norm that is moved changes far more than rounding
        if bool((again - plain).abs().max() <= 1024 * torch.finfo(plain.dtype).eps * plain.abs().max()):
            return module
    return None


def replaced_embeddings(tokens: nn.Module, widen: nn.Linear, wide: Tokens) -> list[AbstractContextManager[Any]]:
    """Return changes that put vectors of the model's width in the place of the token embeddings.

    Args:
        tokens: the token embedding.
        widen: the map to the width of the model; positions that are added before it are kept.
        wide: the vectors.
    """
    return [patched_output(tokens, torch.zeros_like), patched_output(widen, lambda rest: rest + wide)]

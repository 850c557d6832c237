"""Decoding with a KV cache equals the full forward pass."""

import torch
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.models.cache import Cache
from ordinate.testing.case import SchemeCase
from ordinate.testing.tiny_model import TinyTransformer
from ordinate.testing.tolerance import assert_as_close

TOKENS = 9
CHUNKS = ([2, 7], [1, 3, 0, 5], [4, 1, 4], [9], [0, 8, 1])


def decoding_token_by_token_equals_the_full_pass(case: SchemeCase) -> None:
    """For outputs and for the cached keys and values of each layer."""
    _check_chunks(case, [1] * TOKENS)


def decoding_in_chunks_equals_the_full_pass(case: SchemeCase) -> None:
    """For chunks of any size, including empty ones and the whole sequence."""
    for chunks in CHUNKS:
        _check_chunks(case, chunks)


def decoding_after_padding_equals_each_row_alone(case: SchemeCase) -> None:
    """For a batch of left-padded prompts of different lengths, continued token by token."""
    model, x = case.model(), case.embeddings(3, TOKENS)
    lengths, prompt = (6, 4, 1), 6
    real = torch.tensor([[place >= prompt - length for place in range(prompt)] for length in lengths])
    cache = Cache()
    outs = [model(x[:, :prompt], case.with_axes(Geometry.padded(real)), cache)]
    outs += [model(x[:, place : place + 1], cache.next_geometry(1), cache) for place in range(prompt, TOKENS)]
    together = torch.cat(outs, 1)
    for row, length in enumerate(lengths):
        first = prompt - length
        alone = model(x[row : row + 1, first:], case.with_axes(Geometry.causal(TOKENS - first)))
        assert_as_close(together[row : row + 1, first:], alone, alone, what=f"the row of {length} tokens")


def _check_chunks(case: SchemeCase, chunks: list[int]) -> None:
    model, x = case.model(), case.embeddings(2, TOKENS)
    whole = Cache()
    full = model(x, case.with_axes(Geometry.causal(TOKENS)), whole)
    out, cache = _decode(case, model, x, chunks)
    assert_as_close(out, full, full, what=f"the output in chunks of {chunks}")
    for layer, (one, other) in enumerate(zip(cache.states, whole.states, strict=True)):
        cached = {name: value for name, value in vars(other).items() if isinstance(value, Tensor)}
        for name, value in cached.items():
            assert_as_close(getattr(one, name), value, value, what=f"the cached {name} of layer {layer}")


def _decode(case: SchemeCase, model: TinyTransformer, x: Tensor, chunks: list[int]) -> tuple[Tensor, Cache]:
    cache, outs = Cache(), []
    for piece in x.split(chunks, 1):
        outs.append(model(piece, case.with_axes(cache.next_geometry(piece.shape[1])), cache))
    return torch.cat(outs, 1), cache

"""Reading a text piece by piece gives what reading it at once gives."""

import torch
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.models.cache import Cache
from ordinate.testing.case import Case
from ordinate.testing.tiny import Tiny
from ordinate.testing.tolerance import assert_as_close

TOKENS = 9
CHUNKS = ([2, 7], [1, 3, 0, 5], [4, 1, 4], [9], [0, 8, 1])


def decoding_token_by_token_equals_the_full_pass(case: Case) -> None:
    """Outputs, and the keys and values that every layer remembers."""
    _check_chunks(case, [1] * TOKENS)


def decoding_in_chunks_equals_the_full_pass(case: Case) -> None:
    """Pieces of any sizes, empty ones and the whole included."""
    for chunks in CHUNKS:
        _check_chunks(case, chunks)


def decoding_after_padding_equals_each_row_alone(case: Case) -> None:
    """A batch of prompts of different lengths, padded on the left, then continued token by token."""
    model, x = case.model(), case.vectors(3, TOKENS)
    lengths, prompt = (6, 4, 1), 6
    real = torch.tensor([[place >= prompt - length for place in range(prompt)] for length in lengths])
    cache = Cache()
    outs = [model(x[:, :prompt], case.place(Geometry.padded(real)), cache)]
    outs += [model(x[:, place : place + 1], cache.following(1), cache) for place in range(prompt, TOKENS)]
    together = torch.cat(outs, 1)
    for row, length in enumerate(lengths):
        first = prompt - length
        alone = model(x[row : row + 1, first:], case.place(Geometry.causal(TOKENS - first)))
        assert_as_close(together[row : row + 1, first:], alone, alone, what=f"the row of {length} tokens")


def _check_chunks(case: Case, chunks: list[int]) -> None:
    model, x = case.model(), case.vectors(2, TOKENS)
    whole = Cache()
    full = model(x, case.place(Geometry.causal(TOKENS)), whole)
    out, cache = _decode(case, model, x, chunks)
    assert_as_close(out, full, full, what=f"the output in chunks of {chunks}")
    for layer, (one, other) in enumerate(zip(cache.states, whole.states, strict=True)):
        held = {name: kept for name, kept in vars(other).items() if isinstance(kept, Tensor)}
        for name, kept in held.items():
            assert_as_close(getattr(one, name), kept, kept, what=f"the cached {name} of layer {layer}")


def _decode(case: Case, model: Tiny, x: Tensor, chunks: list[int]) -> tuple[Tensor, Cache]:
    cache, outs = Cache(), []
    for piece in x.split(chunks, 1):
        outs.append(model(piece, case.place(cache.following(piece.shape[1])), cache))
    return torch.cat(outs, 1), cache

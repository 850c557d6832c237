"""Reading may stop and go on."""

import torch

from ordinate.geometry import Geometry
from ordinate.testing.closeness import assert_same
from ordinate.testing.mixer import MixerCase

TOKENS = 13


def token_by_token_equals_all_at_once(case: MixerCase) -> None:
    """A text read one token at a time, each with the memory of those before."""
    _check_pieces(case, [1] * TOKENS)


def in_pieces_equals_all_at_once(case: MixerCase) -> None:
    """A text read in pieces of several lengths, single tokens among them."""
    _check_pieces(case, [5, 1, 2, 4, 1])
    _check_pieces(case, [1, 8, 4])


def a_memory_changes_nothing_that_was_returned(case: MixerCase) -> None:
    """Reading on from one memory twice gives the same twice: a memory is a value."""
    _need_streams(case)
    mixer, scheme, x = case.mixer(), case.scheme(), case.tokens(2, 6)
    _, state = mixer(x[:, :4], scheme.at(Geometry.causal(4)))
    after = scheme.at(Geometry.causal(2, cached=4))
    first, _ = mixer(x[:, 4:], after, state)
    second, _ = mixer(x[:, 4:], after, state)
    assert first.equal(second), "the second reading differs from the first"


def a_memory_can_be_taken_apart(case: MixerCase) -> None:
    """The memory of some rows of a batch, in another order, goes on as those rows do."""
    _need_streams(case)
    mixer, scheme, x = case.mixer(), case.scheme(), case.tokens(3, 6)
    _, state = mixer(x[:, :4], scheme.at(Geometry.causal(4)))
    assert state is not None, "it returned no memory"
    rows, after = torch.tensor([2, 0]), scheme.at(Geometry.causal(2, cached=4))
    whole, _ = mixer(x[:, 4:], after, state)
    part, _ = mixer(x[rows, 4:], after, state.take(rows))
    assert_same(part, whole[rows], "some rows of the memory")


def reading_on_after_padding_equals_each_row_alone(case: MixerCase) -> None:
    """A batch whose shorter rows began with padding, in two pieces, then token by token."""
    _need_streams(case)
    lengths, x = (8, 5, 2), case.tokens(3, 12)
    real = torch.arange(12) >= 8 - torch.tensor(lengths)[:, None]
    first = Geometry.padded(real[:, :5])
    wheres = [first]
    for tokens in (3, 1, 1, 2):
        past, begin = wheres[-1], sum(where.shape[0] for where in wheres)
        new = Geometry.padded(real[:, : begin + tokens]).block(slice(begin, None), slice(begin, None))
        wheres.append(new.after(past))
    out = case.in_pieces(x, wheres)
    for row, length in enumerate(lengths):
        begin = 8 - length
        alone = case.mixed(x[row : row + 1, begin:], Geometry.causal(12 - begin))
        assert_same(out[row : row + 1, begin:], alone, f"the row of {length} tokens")


def _check_pieces(case: MixerCase, sizes: list[int]) -> None:
    _need_streams(case)
    x = case.tokens(2, TOKENS)
    whole = case.mixed(x, Geometry.causal(TOKENS))
    begins = [sum(sizes[:place]) for place in range(len(sizes))]
    wheres = [Geometry.causal(size, cached=begin) for size, begin in zip(sizes, begins, strict=True)]
    assert_same(case.in_pieces(x, wheres), whole, f"pieces of {sizes}")


def _need_streams(case: MixerCase) -> None:
    case.need(case.kind.causal and case.mixer().streams, "it does not go on after a pause")

"""Incremental decoding gives the same results as one forward pass."""

import torch

from ordinate.core.geometry import Geometry
from ordinate.testing.assert_close import assert_equal_up_to_order
from ordinate.testing.mixer import MixerCase

TOKENS = 13


def token_by_token_equals_one_pass(case: MixerCase) -> None:
    """Decoding one token at a time equals one forward pass over the sequence."""
    _check_pieces(case, [1] * TOKENS)


def chunks_equal_one_pass(case: MixerCase) -> None:
    """Decoding in chunks of several lengths, including single tokens and none, equals one forward pass."""
    _check_pieces(case, [5, 1, 2, 4, 1])
    _check_pieces(case, [0, 1, 0, 8, 4, 0])


def states_are_not_modified(case: MixerCase) -> None:
    """Continuing twice from the same state gives equal results: states are immutable values."""
    _need_streams(case)
    mixer, scheme, x = case.mixer(), case.scheme(), case.tokens(2, 6)
    _, state = mixer(x[:, :4], scheme.at(Geometry.causal(4)))
    after = scheme.at(Geometry.causal(2, cached=4))
    first, _ = mixer(x[:, 4:], after, state)
    second, _ = mixer(x[:, 4:], after, state)
    assert first.equal(second), "the second continuation differs from the first"


def states_can_be_reordered(case: MixerCase) -> None:
    """A state with selected, reordered rows continues like those rows (beam search)."""
    _need_streams(case)
    mixer, scheme, x = case.mixer(), case.scheme(), case.tokens(3, 6)
    _, state = mixer(x[:, :4], scheme.at(Geometry.causal(4)))
    assert state is not None, "it returned no state"
    rows, after = torch.tensor([2, 0]), scheme.at(Geometry.causal(2, cached=4))
    whole, _ = mixer(x[:, 4:], after, state)
    part, _ = mixer(x[rows, 4:], after, state.select_rows(rows))
    assert_equal_up_to_order(part, whole[rows], "selected rows of the state")


def decoding_after_padding_equals_each_row_alone(case: MixerCase) -> None:
    """A left-padded batch decoded in chunks and single tokens equals each row decoded alone, without padding."""
    _need_streams(case)
    lengths, x = (8, 5, 2), case.tokens(3, 12)
    real = torch.arange(12) >= 8 - torch.tensor(lengths)[:, None]
    first = Geometry.padded(real[:, :5])
    wheres = [first]
    for tokens in (3, 1, 1, 2):
        past, begin = wheres[-1], sum(where.shape[0] for where in wheres)
        new = Geometry.padded(real[:, : begin + tokens]).block(slice(begin, None), slice(begin, None))
        wheres.append(new.with_past(past))
    out = case.output_in_chunks(x, wheres)
    for row, length in enumerate(lengths):
        begin = 8 - length
        alone = case.output(x[row : row + 1, begin:], Geometry.causal(12 - begin))
        assert_equal_up_to_order(out[row : row + 1, begin:], alone, f"the row of {length} tokens")


def _check_pieces(case: MixerCase, sizes: list[int]) -> None:
    _need_streams(case)
    x = case.tokens(2, TOKENS)
    whole = case.output(x, Geometry.causal(TOKENS))
    begins = [sum(sizes[:place]) for place in range(len(sizes))]
    wheres = [Geometry.causal(size, cached=begin) for size, begin in zip(sizes, begins, strict=True)]
    assert_equal_up_to_order(case.output_in_chunks(x, wheres), whole, f"chunks of {sizes}")


def _need_streams(case: MixerCase) -> None:
    case.skip_unless(case.kind.causal and case.mixer().supports_cache, "it does not support incremental decoding")

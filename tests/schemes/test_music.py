import math

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes.music import Music
from ordinate.testing import check_scheme

HEADS, HEAD_WIDTH, LONGEST = 2, 3, 6


def born(**options):
    return Music(head_width=HEAD_WIDTH, heads=HEADS, **{"max_length": LONGEST, **options}).double()


def drawn(batch, tokens):
    shape = batch, HEADS, tokens, HEAD_WIDTH
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for _ in range(2)]


def vector(table, head, offset, future=False, out_of_range=None, per_head=True):
    # the table begins with the farthest past, as the paper's E^r does
    if offset < 0 and not future:
        offset = 0
    if abs(offset) >= LONGEST:
        if out_of_range == "zero":
            return None
        offset = math.copysign(LONGEST - 1, offset)
    return table[head if per_head else 0, LONGEST - 1 - int(offset)]


@pytest.mark.parametrize(
    ("options", "positions"),
    [
        ({}, [[0, 1, 5, 3], [2, 2, 0, 5]]),
        ({"per_head": False}, [[0, 1, 5, 3]]),
        ({"future": True}, [[0, 1, 5, 3]]),
        ({"out_of_range": "clamp"}, [[0, 7, 100, 3]]),
        ({"out_of_range": "zero"}, [[0, 7, 100, 3]]),
        ({"out_of_range": "clamp", "future": True}, [[0, 7, 100, 3]]),
        ({"out_of_range": "zero", "future": True}, [[0, 7, 100, 3]]),
    ],
)
def test_scores_and_their_gradients_equal_the_paper_number_by_number(options, positions):
    scheme = born(**options)
    q, k = drawn(len(positions), 4)
    bias = scheme.content_bias(q, k, Geometry.from_positions(torch.tensor(positions)[..., None], causal=False))
    numbers = []
    for b, places in enumerate(positions):
        for h in range(HEADS):
            for i, p in enumerate(places):
                for r in places:
                    met = vector(scheme.table, h, p - r, **options)
                    products = (
                        [0 * q[0, 0, 0, 0]] if met is None else [q[b, h, i, c] * met[c] for c in range(HEAD_WIDTH)]
                    )
                    numbers.append(sum(products) / math.sqrt(HEAD_WIDTH))
    expected = torch.stack(numbers).reshape(bias.shape)
    torch.testing.assert_close(bias, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(bias)
    ours, theirs = (torch.autograd.grad(made, (q, scheme.table), upstream) for made in (bias, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tokens", [1, 4, LONGEST])
def test_it_equals_the_skewing_algorithm(tokens):
    # section 3.4.1: a column of zeros in front, reshaped, and its first row taken off
    scheme = born()
    q, k = drawn(2, tokens)
    products = q @ scheme.table[:, LONGEST - tokens :].mT
    padded = torch.nn.functional.pad(products, (1, 0))
    skewed = padded.reshape(2, HEADS, tokens + 1, tokens)[:, :, 1:] / math.sqrt(HEAD_WIDTH)
    bias = scheme.content_bias(q, k, Geometry.causal(tokens))
    torch.testing.assert_close(bias.tril(), skewed.tril(), rtol=0, atol=1e-14)


def test_attention_is_that_of_the_paper():
    scheme = born()
    q, k = drawn(1, 5)
    v = torch.randn_like(k)
    out = attend(q, k, v, scheme.at(Geometry.causal(5)))
    relative = scheme.content_bias(q, k, Geometry.causal(5)) * math.sqrt(HEAD_WIDTH)
    scores = (q @ k.mT + relative) / math.sqrt(HEAD_WIDTH)
    hidden = torch.ones(5, 5).triu(1).bool()
    expected = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@pytest.mark.extended
@pytest.mark.parametrize(
    "options", [{"out_of_range": "clamp"}, {"out_of_range": "zero"}, {"future": True}, {"per_head": False}]
)
def test_every_promise_of_a_scheme_holds(options):
    broken = {came.name: came.message for came in check_scheme(Music, **options) if came.message}
    assert broken == {}


def test_distances_beyond_the_table_are_rejected_by_default():
    where = Geometry.causal(LONGEST + 1)
    with pytest.raises(
        ValueError, match=r"Music serves positions 0 to 5 \(max_length 6\); got 0 to 6; build it with"
    ):
        born().at(where)
    q, k = drawn(1, LONGEST + 1)
    assert born(out_of_range="clamp").content_bias(q, k, where)[0, 0, -1, 0] != 0
    assert born(out_of_range="zero").content_bias(q, k, where)[0, 0, -1, 0] == 0


def test_an_unknown_way_beyond_the_table_is_refused(untyped):
    with pytest.raises(ValueError, match="no out_of_range of music is named 'clip'; there are: clamp, error, zero"):
        born(out_of_range="clip")


@pytest.mark.parametrize("name", ["head_width", "heads", "max_length"])
def test_sizes_must_be_above_zero(name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        Music(**{"head_width": 2, "heads": 2, "max_length": 2, name: 0})


def test_fractional_positions_are_refused():
    with pytest.raises(ValueError, match="Music takes integer positions; got torch"):
        born().at(Geometry.from_positions(torch.rand(1, 3, 1)))


def test_vectors_for_another_model_are_refused(untyped):
    q, k = torch.randn(2, 1, HEADS + 1, 4, HEAD_WIDTH, dtype=torch.float64)
    with pytest.raises(ValueError, match="must have as many heads as the queries, or one, and their head width; got"):
        born().content_bias(q, k, Geometry.causal(4))

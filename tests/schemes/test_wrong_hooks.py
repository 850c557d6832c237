"""A scheme of a user's own whose hooks return what attention cannot use gets an error, at every length alike."""

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes import NoPosition, Scheme


class Shifted(Scheme):
    shift_invariant = True


class Mask(Shifted):
    def bias(self, where):
        return (where.offset[..., 0] < 3)[:, None]


class Whole(Shifted):
    def bias(self, where):
        return -where.offset[..., 0][:, None].abs()


class Matrix(Shifted):
    def bias(self, where):
        return -where.offset[0, ..., 0].abs().float()


class Longer(Shifted):
    def bias(self, where):
        return torch.zeros(1, 1, where.shape[0], where.shape[1] + 1)


class Heads(Shifted):
    def bias(self, where):
        return -where.offset[..., 0][:, None].abs().float().expand(-1, 3, -1, -1)


class Sequences(Heads):
    shift_invariant = False

    def bias(self, where):
        return super().bias(where)[:, :1].expand(3, -1, -1, -1)


class ContentHeads(Shifted):
    def content_bias(self, q, k, where):
        return Heads().bias(where)


class ContentMask(Shifted):
    def content_bias(self, q, k, where):
        return (where.offset[..., 0] < 3)[:, None]


class Narrow(Scheme):
    shift_invariant = False

    def encode_query(self, q, pos):
        return q[..., :4]


class Fewer(Scheme):
    shift_invariant = False

    def encode_key(self, k, pos):
        return k[:, :, :-1]


class Undeclared(Scheme):
    def bias(self, where):
        return -where.offset[..., 0][:, None].abs().float()


WRONG = {
    Mask: r"bias of Mask needs floating-point numbers; got torch.bool; convert it",
    Whole: r"bias of Whole needs floating-point numbers; got torch.int64; convert it",
    Matrix: r"bias of Matrix needs the axes \(batch or 1, heads or 1, queries, keys\); got \(.*\); reshape it",
    Longer: r"bias of Longer needs a number for each of \(.*\) queries and keys; got \(1, 1, .*\); give one",
    Heads: r"bias of Heads needs a number for each of \(1, 2, 1, 1\) sequences, heads, .*; got \(1, 3, 1, 1\); give",
    Sequences: r"bias of Sequences needs a number for each of \(1, 2, 1, 1\) sequences, .*; got \(3, 1, 1, 1\); give",
    ContentHeads: r"content_bias of ContentHeads needs a number for each of \(1, 2, .*; got \(1, 3, .*; give one",
    ContentMask: r"content_bias of ContentMask needs floating-point numbers; got torch.bool; convert it",
    Narrow: r"queries and keys to one head width, .*; Narrow made \(1, 2, \d+, 4\) and \(1, 2, \d+, 8\); correct",
    Fewer: r"queries and keys to one head width, and keep all of them; Fewer made .*; correct its encode_query",
    Undeclared: r"must declare whether a shift .*; Undeclared does not; write shift_invariant = True, or False",
}


# a few tokens are a matter of PyTorch's attention or of the formula, many of kernels in C++
@pytest.mark.parametrize("tokens", [5, 300])
@pytest.mark.parametrize("kind", WRONG)
def test_what_attention_cannot_use_is_refused(kind, tokens, untyped):
    q = torch.randn(1, 2, tokens, 8)
    with pytest.raises(ValueError, match=WRONG[kind]):
        attend(q, q, q, kind().at(Geometry.causal(tokens)))


@pytest.mark.parametrize("kind", [Mask, Heads, ContentHeads, ContentMask])
def test_the_formula_refuses_it_too(kind, untyped):
    q = torch.randn(1, 2, 5, 8)
    with pytest.raises(ValueError, match=WRONG[kind]):
        attend(q, q, q, kind().at(Geometry.causal(5)), backend="reference")


@pytest.mark.parametrize("tokens", [5, 300])
def test_what_broadcasts_is_expanded(tokens, untyped):
    class Raised(Shifted):
        def bias(self, where):
            return torch.tensor([1.0, -2.0])[None, :, None, None]

    q, where = torch.randn(1, 2, tokens, 8), Geometry.causal(tokens)
    at = Raised().at(where)
    assert at.bias.shape == (1, 2, tokens, tokens)
    # a constant changes no weight
    torch.testing.assert_close(attend(q, q, q, at), attend(q, q, q, NoPosition().at(where)))

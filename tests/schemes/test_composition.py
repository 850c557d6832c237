import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes import T5, Alibi, Learned, NoPosition, Rope, Sinusoidal
from ordinate.schemes._composition import HeadGroups, Sum
from ordinate.schemes.concatenated import Concatenated
from ordinate.schemes.spectra.dynamic import Dynamic
from ordinate.testing import check_scheme


class RopeAndAlibi(Sum):
    """Sum of both.

        q.k turned, minus the penalty

    Enters at: queries, keys and scores. Source: nobody. Departs: nowhere.
    """

    shift_invariant = True
    citation = "@misc{nobody2026,\n  title = {None},\n  year = {2026}\n}"

    def __init__(self, *, head_width: int, heads: int):
        super().__init__(Rope(head_width=head_width), Alibi(heads=heads))
        self.citation = type(self).citation


class LearnedAndRotated(RopeAndAlibi):
    __doc__ = RopeAndAlibi.__doc__
    shift_invariant = False

    def __init__(self, *, width: int, head_width: int, max_length: int):
        spectrum = Dynamic(trained_length=4, factor=2.0)
        Sum.__init__(
            self, Learned(width=width, max_length=max_length), Rope(head_width=head_width, spectrum=spectrum)
        )
        self.citation = type(self).citation


class HalfRope(HeadGroups):
    __doc__ = RopeAndAlibi.__doc__
    shift_invariant = True
    citation = RopeAndAlibi.citation

    def __init__(self, *, head_width: int, heads: int):
        super().__init__(Rope(head_width=head_width), T5(heads=heads // 2), heads=heads)
        self.citation = type(self).citation


class HalfDynamic(HalfRope):
    __doc__ = RopeAndAlibi.__doc__
    shift_invariant = False

    def __init__(self, *, head_width: int, heads: int):
        spectrum = Dynamic(trained_length=4, form="qwen")
        parts = Rope(head_width=head_width, spectrum=spectrum), Alibi(heads=heads // 2)
        HeadGroups.__init__(self, *parts, heads=heads)
        self.citation = type(self).citation


@pytest.mark.extended
@pytest.mark.parametrize("kind", [RopeAndAlibi, LearnedAndRotated, HalfRope, HalfDynamic])
def test_a_composition_passes_the_contract_suite(kind):
    outcomes = check_scheme(kind)
    assert {came.name: came.message for came in outcomes if not came.passed and came.skipped_reason is None} == {}


def drawn(heads=4, tokens=7, width=8):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 2, heads, tokens, width, generator=generator, dtype=torch.float64).unbind()


def test_a_sum_applies_both_schemes():
    (q, k, v), where = drawn(), Geometry.causal(7)
    both = Sum(Rope(head_width=8), Alibi(heads=4)).at(where)
    out = attend(q, k, v, both)
    # by hand: the rotated products minus the penalty
    turned_q, turned_k = Rope(head_width=8).at(where).encode(q, k).pair
    scores = turned_q @ turned_k.mT / 8**0.5 + Alibi(heads=4).bias(where)
    weights = scores.masked_fill(~where.visible[:, None], float("-inf")).softmax(-1)
    assert torch.allclose(out, weights @ v, rtol=0, atol=1e-13)
    alone = Rope(head_width=8).at(where)
    assert (out - attend(q, k, v, alone)).abs().max() > 1e-2


def test_each_part_acts_on_its_own_heads():
    (q, k, v), where = drawn(), Geometry.causal(7)
    halves = HeadGroups(Rope(head_width=8), Alibi(heads=2), heads=4).at(where)
    out = attend(q, k, v, halves)
    rope, alibi = Rope(head_width=8).at(where), Alibi(heads=2).at(where)
    first = attend(q[:, :2], k[:, :2], v[:, :2], rope)
    second = attend(q[:, 2:], k[:, 2:], v[:, 2:], alibi)
    assert torch.allclose(out, torch.cat([first, second], 1), rtol=0, atol=1e-13)


def test_columns_are_appended_before_anything_is_added_to_all_of_them():
    x, where = torch.zeros(1, 5, 24), Geometry.causal(5)
    both = Sum(Sinusoidal(width=32), Concatenated(width=32, position_width=8))
    assert both.appended_width == 8
    marked = both.at(where).embed(x)
    appended = Concatenated(width=32, position_width=8).at(where).embed(x)
    assert marked.equal(Sinusoidal(width=32).at(where).embed(appended))


def test_properties_follow_from_the_parts():
    both = Sum(Learned(width=8, max_length=16), Rope(head_width=8))
    assert (both.max_length, both.integer_positions, both.shift_invariant) == (16, True, False)
    assert both.hooks == ("embed", "encode_query", "encode_key")
    assert both.citation.count("@") == 2
    assert Sum(Rope(head_width=8), Alibi(heads=2)).shift_invariant
    with pytest.raises(ValueError, match="Learned serves positions 0 to 15"):
        both.at(Geometry.causal(17))


def test_parts_for_other_inputs_raise_an_error():
    class OnGrids(NoPosition):
        axes = (2,)

    with pytest.raises(ValueError, match=r"the same number of position axes; got Rope for .* OnGrids for"):
        Sum(Rope(head_width=8), OnGrids())


def test_two_schemes_with_their_own_scores_raise_an_error():
    spectrum = Dynamic(trained_length=4, form="qwen")
    with pytest.raises(ValueError, match=r"only one scheme can replace q.k by its own score; got Rope and Rope"):
        Sum(Rope(head_width=8, spectrum=spectrum), Rope(head_width=8, spectrum=spectrum))


def test_heads_that_cannot_be_split_evenly_raise_an_error():
    with pytest.raises(
        ValueError, match="the number of schemes must divide the number of heads; got 4 heads for 3 schemes"
    ):
        HeadGroups(NoPosition(), NoPosition(), NoPosition(), heads=4)
    halves = HeadGroups(Rope(head_width=8), NoPosition(), heads=4)
    with pytest.raises(
        ValueError,
        match="must divide the numbers of query and key heads; got 1 heads for 2 schemes; use more key heads",
    ):
        halves.encode_key(torch.zeros(1, 1, 3, 8), torch.zeros(1, 3, 1))


def test_a_share_of_the_heads_cannot_mark_tokens():
    with pytest.raises(
        ValueError, match=r"must act inside attention; got Sinusoidal, which enters at token embeddings; add it"
    ):
        HeadGroups(Sinusoidal(width=8), NoPosition(), heads=4)

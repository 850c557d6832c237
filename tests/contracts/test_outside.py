"""Schemes of the kinds that the catalog does not hold yet: the suite must be fair to them."""

import pytest
import torch
from torch import nn

from ordinate.ops.sinusoids import sinusoids
from ordinate.schemes import Scheme
from ordinate.testing import check_scheme
from ordinate.testing.case import SchemeCase

CITATION = "@misc{nobody2026,\n  title = {None},\n  year = {2026}\n}"


class Shaw(Scheme):
    """A trained vector for each near distance, for scores and for outputs.

        score += q . a[p_i - p_j],   out += sum_j weight_j b[p_i - p_j]

    Enters at: scores, from content too, and outputs.
    Source: Shaw et al. 2018. Departs: nowhere.
    """

    per_layer = True
    integer_positions = True
    shift_invariant = True
    citation = CITATION

    def __init__(self, *, head_width: int, reach: int = 4):
        super().__init__()
        self.reach = reach
        self.keys = nn.Parameter(torch.randn(2 * reach + 1, head_width))
        self.values = nn.Parameter(torch.randn(2 * reach + 1, head_width))

    def near(self, table, where, rows):
        place = where.offset[..., 0].clamp(-self.reach, self.reach) + self.reach
        return table[place].expand(rows, -1, -1, -1)

    def content_bias(self, q, k, where):
        near = self.near(self.keys, where, q.shape[0]).to(q.dtype)
        # the second term needs as many heads in k as in q
        return torch.einsum("bhid,bijd->bhij", q, near) + torch.einsum("bhjd,bhid->bhij", k.tanh(), q.tanh())

    def value_bias(self, weights, where):
        near = self.near(self.values, where, weights.shape[0]).to(weights.dtype)
        return torch.einsum("bhij,bijd->bhid", weights, near)


class Streets(Scheme):
    """A penalty for the distance along streets, for images only.

        bias = -(|row_i - row_j| + |column_i - column_j|)

    Enters at: scores. Source: Nobody. Departs: nowhere.
    """

    axes = (2,)
    shift_invariant = True
    citation = CITATION

    def bias(self, where):
        return -where.offset.abs().sum(-1)[:, None].to(torch.promote_types(where.q_pos.dtype, torch.float32))


class Corner(Scheme):
    """Sinusoids of both axes in appended columns.

        x = [token, sinusoids(row), sinusoids(column)]

    Enters at: tokens. Source: Nobody. Departs: nowhere.
    """

    axes = (1, 2)
    shift_invariant = False
    appended_width = 8
    citation = CITATION

    def embed(self, x, pos):
        waves = [sinusoids(pos[..., axis, None], 4, theta=10_000.0, form="vaswani", odd="paper") for axis in (0, -1)]
        return torch.cat([x, torch.cat(waves, -1).to(x.dtype).expand(x.shape[0], -1, -1)], -1)


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("kind", [Shaw, Streets, Corner])
def test_a_sound_scheme_of_any_kind_passes(kind):
    outcomes = check_scheme(kind)
    assert {came.name: came.message for came in outcomes if not came.passed and came.skipped_reason is None} == {}


def test_options_reach_the_scheme():
    assert SchemeCase(Shaw, {"reach": "1"}).scheme().reach == 1

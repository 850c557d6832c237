import inspect
import os
import subprocess
import sys

import pytest
import torch

from ordinate import Geometry
from ordinate.core import catalog
from ordinate.schemes import Alibi, Rope, Scheme
from ordinate.schemes._score_mod import mask_mod, score_mod
from ordinate.testing.backend import GEOMETRIES, random_qkv
from ordinate.testing.case import HEAD_WIDTH, HEADS, KV_HEADS, SchemeCase
from ordinate.testing.tolerance import assert_as_close

NAMES = catalog.names("ordinate.schemes")


def placed(case, where):
    at = case.scheme().eval().at(case.with_axes(where))
    q, k, _ = (
        x.detach() for x in random_qkv(where, heads=HEADS, kv_heads=KV_HEADS, width=HEAD_WIDTH, dtype=torch.float64)
    )
    return at, at.scheme.encode_query(q, at.where.q_pos), at.scheme.encode_key(k, at.where.k_pos)


def grid(where, rows, heads):
    """Index tensors of all query-key pairs at once, which FlexAttention passes one at a time."""
    return torch.meshgrid(*(torch.arange(n) for n in (rows, heads, *where.shape)), indexing="ij")


def added(at, q, k):
    places = grid(at.where, q.shape[0], HEADS)
    add = score_mod(at, q, k)
    nothing = torch.zeros(places[0].shape, dtype=torch.float64)
    return nothing if add is None else add(nothing, *places)


@pytest.mark.covering(1)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", NAMES)
def test_the_score_mod_agrees_with_the_scheme(name, geometry):
    case = SchemeCase(catalog.load("ordinate.schemes", Scheme, name))
    at, q, k = placed(case, GEOMETRIES[geometry](9))
    beyond = {"score", "value_bias"} & set(at.scheme.hooks)
    if beyond:
        with pytest.raises(
            ValueError, match=r"a score_mod can only add to the scores q\.k; got .*; use ordinate.attend"
        ):
            score_mod(at, q, k)
        return
    content = at.scheme.content_bias(q, k.repeat_interleave(HEADS // KV_HEADS, 1), at.where)
    parts = [torch.zeros_like(added(at, q, k)), *(part for part in (content, at.bias) if part is not None)]
    visible = at.where.visible[:, None]
    exact, came = (x.masked_fill(~visible, 0.0) for x in (sum(parts), added(at, q, k)))
    assert_as_close(came, exact, exact)
    learned = list(at.scheme.parameters())
    if exact.requires_grad:
        weights = torch.randn(exact.shape, dtype=torch.float64)
        told = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
        for one, other in zip(
            *(torch.autograd.grad(x, learned, weights, **told) for x in (came, exact)), strict=True
        ):
            assert_as_close(one, other, other, factor=3.0, what="gradient")


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_mask_mod_agrees_with_the_geometry(geometry):
    where = GEOMETRIES[geometry](9)
    rows = where.batch_size
    told = mask_mod(where)(*grid(where, rows, 1)).broadcast_to(rows, 1, *where.shape)[:, 0]
    assert torch.equal(told, where.visible.expand(rows, -1, -1))


class Spied(Alibi):
    """Counts the bias values that are computed."""

    shift_invariant = True
    asked = 0

    def bias(self, where):
        type(self).asked += where.shape[0] * where.shape[1]
        return super().bias(where)


@pytest.mark.parametrize(
    "where",
    [
        Geometry.causal(2000),
        Geometry.causal(40, cached=1960),
        Geometry.packed([1500, 500]),
        Geometry.padded(torch.arange(2000)[None] >= torch.tensor([[3], [0]])),
    ],
    ids=["causal", "cached", "packed", "padded"],
)
def test_a_shift_invariant_bias_is_read_from_an_offset_table(where):
    Spied.asked = 0
    add = score_mod(Spied(heads=4).at(where))
    assert Spied.asked < 4000
    assert max(x.numel() for x in inspect.getclosurevars(add).nonlocals.values() if torch.is_tensor(x)) <= 4 * 4000
    zero, place = torch.zeros(()), torch.tensor
    score = add(zero, place(0), place(1), place(30), place(20))
    assert score == -Alibi(heads=4).slopes[1] * abs(where.offset[0, 30, 20, 0])


def test_few_tokens_at_distant_positions_use_no_offset_table():
    pos = torch.tensor([0, 10_000_000])[None, :, None]
    add = score_mod(Spied(heads=4).at(Geometry.from_positions(pos)))
    zero, place = torch.zeros(()), torch.tensor
    assert add(zero, place(0), place(1), place(1), place(0)) == -Alibi(heads=4).slopes[1] * 10_000_000


def test_fractional_positions_and_positions_per_row_are_supported():
    pos = torch.tensor([[0.5, 1.0, 4.25], [2.0, 2.5, 7.0]], dtype=torch.float64)[..., None]
    at = Alibi(heads=HEADS).at(Geometry.from_positions(pos))
    assert torch.equal(added(at, torch.zeros(2, HEADS, 3, 8), None), at.bias)


def test_a_scheme_that_adds_nothing_has_no_score_mod():
    assert score_mod(Rope(head_width=8).at(Geometry.causal(3))) is None


def test_a_content_dependent_bias_needs_q_and_k(untyped):
    class Content(Alibi):
        shift_invariant = False

        def content_bias(self, q, k, where):
            return q @ k.mT

    at = Content(heads=4).at(Geometry.causal(9))
    q, k, _ = (x.detach() for x in random_qkv(at.where, dtype=torch.float64))
    with pytest.raises(
        ValueError, match=r"the bias of Content depends on content; got no q and k; pass both, encoded"
    ):
        score_mod(at)
    assert torch.equal(added(at, q, k), q @ k.repeat_interleave(2, 1).mT + at.bias)


@pytest.mark.parametrize("hook", ["score", "value_bias"])
def test_a_scheme_that_needs_more_than_scores_raises_an_error(hook):
    class More(Alibi):
        pass

    setattr(More, hook, lambda *_: None)
    match = rf"a score_mod can only add to the scores q\.k; got More, which uses {hook}; use ordinate.attend"
    with pytest.raises(ValueError, match=match):
        score_mod(More(heads=4).at(Geometry.causal(3)))


@pytest.mark.extended
def test_compiled_flex_attention_accepts_both_functions():
    program = """
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from ordinate import Geometry, attend
from ordinate.schemes import T5
from ordinate.schemes._score_mod import mask_mod, score_mod

where = Geometry.padded(torch.arange(150)[None] >= torch.tensor([[20], [0]]), window=100)
at = T5(heads=2).at(where)
q = torch.randn(2, 2, 150, 16)
k, v = torch.randn(2, 2, 1, 150, 16).unbind()
seen = create_block_mask(mask_mod(where), 2, None, 150, 150, device="cpu")
with torch.no_grad():
    out = torch.compile(flex_attention, fullgraph=True)(
        q, k, v, score_mod=score_mod(at), block_mask=seen, enable_gqa=True
    )
    exact = attend(q, k, v, at, backend="reference")
assert (out - exact).abs().max() < 1e-5
"""
    # in a subprocess without the run-time type checks of the other tests, as users run it
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr

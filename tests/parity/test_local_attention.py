import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Rope
from ordinate.schemes.xpos import Xpos

rotary = pytest.importorskip("local_attention.rotary")


def test_rotation_in_half_layout_matches(record):
    q, k = torch.randn(2, 1, 2, 50, 32).double()
    freqs, scale = rotary.SinusoidalEmbeddings(32).double()(q)
    ours = Rope(head_width=32).at(Geometry.causal(50)).encode(q, k).pair
    record(
        torch.stack(ours),
        torch.stack(rotary.apply_rotary_pos_emb(q, k, freqs, scale)),
        scheme="rope",
        oracle=rotary.apply_rotary_pos_emb,
        what="queries and keys",
        within=1e-5,
        because="their rates are in float32",
    )


def test_xpos_matches_with_the_same_centre(record):
    q, k = torch.randn(2, 1, 2, 50, 32).double()
    freqs, scale = rotary.SinusoidalEmbeddings(32, use_xpos=True, scale_base=512).double()(q)
    ours = Xpos(head_width=32, centre=25).at(Geometry.causal(50)).encode(q, k).pair
    record(
        torch.stack(ours),
        torch.stack(rotary.apply_rotary_pos_emb(q, k, freqs, scale)),
        scheme="xpos",
        oracle=rotary.apply_rotary_pos_emb,
        what="queries and keys",
        after="our centre is the middle of their call",
        within=1e-5,
        because="their rates are in float32",
    )

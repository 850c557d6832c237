import pytest
import torch

from ordinate import Geometry, Rope

rotary = pytest.importorskip("local_attention.rotary")


def test_a_rotation_in_half_layout_is_theirs(record):
    q, k = torch.randn(2, 1, 2, 50, 32).double()
    freqs, scale = rotary.SinusoidalEmbeddings(32).double()(q)
    ours = Rope(head_width=32).at(Geometry.causal(50)).encode(q, k)
    record(
        torch.stack(ours),
        torch.stack(rotary.apply_rotary_pos_emb(q, k, freqs, scale)),
        scheme="rope",
        oracle=rotary.apply_rotary_pos_emb,
        what="queries and keys",
        within=1e-5,
        because="their rates are in float32",
    )

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes.pope import Pope

pope = pytest.importorskip("PoPE_pytorch.pope")


@torch.no_grad()
@pytest.mark.parametrize("cached", [0, 20])
def test_pope_scores_match(cached, record):
    q, k = torch.randn(2, 3, 50 - cached, 16).double(), torch.randn(2, 3, 50, 16).double()
    theirs, scheme = pope.PoPE(16, heads=3).double(), Pope(head_width=16, heads=3, init="uniform").double()
    theirs.bias.copy_(scheme.phases[:, 0])
    queries, keys = pope.apply_pope_to_qk(theirs(50), q, k)
    where = Geometry.causal(50 - cached, cached=cached)
    ours = scheme.encode_query(q, where.q_pos) @ scheme.encode_key(k, where.k_pos).mT
    record(
        ours,
        queries @ keys.mT,
        scheme="pope",
        oracle=pope.apply_pope_to_qk,
        what="scores, cached keys",
        after="our channels are in another order, which does not change q·k",
        within=1e-5,
        because="their rates are in float32",
    )

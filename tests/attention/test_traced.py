"""torch.jit.trace would fix what is chosen by values and sizes: it is refused wherever attention begins."""

import pytest
import torch
from torch import nn

from ordinate import Decoder, DropInAttention, Geometry, Shape, VisionShape, VisionTransformer, attend
from ordinate.attention import attend_with_weights
from ordinate.schemes import Alibi, Rope

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
Q, IDS, PIXELS = torch.randn(1, 4, 9, 8), torch.zeros(1, 9, dtype=torch.long), torch.randn(1, 3, 8, 8)
AT = Alibi(heads=4).at(Geometry.causal(9))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = DropInAttention(8, 2, batch_first=True)

    def forward(self, x, mask):
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


def vision():
    shape = VisionShape(vocabulary=3, width=16, heads=2, layers=1, image=(8, 8), patch=(4, 4))
    return VisionTransformer(shape).eval()


CALLS = {
    "attend": (lambda: lambda q: attend(q, q, q, AT), (Q,)),
    "weights": (lambda: lambda q: attend_with_weights(q, q, q, AT)[0], (Q,)),
    # the mask is the causal one, so that it would not be read in later calls
    "masks": (lambda: Masked().eval(), (Q[0], torch.ones(9, 9).triu(1).bool())),
    "rotation": (lambda: Rope(head_width=8), (Q,)),
    "positions": (lambda: lambda x: x + Geometry.causal(x.shape[2]).q_pos, (Q,)),
    "decoder": (lambda: Decoder(Shape(vocabulary=5, width=8, layers=1, heads=2)).eval(), (IDS,)),
    "vision": (vision, (PIXELS,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_tracing_is_refused(name):
    make, given = CALLS[name]
    called = make()
    called(*given)
    with pytest.raises(ValueError, match=r"torch.jit.trace would fix .*; got a call inside of it; use torch.export"):
        torch.jit.trace(called, given, check_trace=False)

"""Positions that count what matters."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.checks import need, need_positive
from ordinate.geometry import Geometry
from ordinate.ops.counts import counts_from, read_between
from ordinate.ops.relative import check_fit
from ordinate.scheme import Scheme
from ordinate.shapes import Bias, Keys, Queries, Weights

# keys that are counted together
KEYS = 128
# of each query and each row of the table
Products = Float[Tensor, "b h i rows"]


class Cope(Scheme):
    """Let each query count only the keys that matter to it, and meet a trained vector at the count.

    A key counts by its gate, from 0 to 1. What a head counts may be words, sentences or anything else: the distance
    to a key is how many of them lie from there on.

        gate(i, t) = sigmoid(q_i . k_t / sqrt(d))        for the keys t that i sees, 0 for others

        count(i, j) = min(sum of gate(i, t) over p_t >= p_j, positions - 1)

        score(i, j) = q_i . k_j / sqrt(d) + q_i . table[count(i, j)]

    Between whole counts the table is read on a straight line.

    Enters at: scores, from content too.
    Args:
        head_width: channels of a head, d.
        positions: rows of the table: counts of positions - 1 and more share the last.
        scaled_gates: whether q.k is divided by sqrt(d) for the gates, as in the published code; not so in the text.
        scaled_term: whether the table's term is divided by sqrt(d) too, as in the published code; not so in the
            paper's listing and in x-transformers.
    Raises:
        ValueError: a head width not above zero, or fewer than 2 positions.
    Source: Golovneva et al. 2024, Contextual Position Encoding, its definitions of gates, positions and interpolation
        and the listing of appendix B, https://arxiv.org/abs/2405.18719; the table is born zero, as there.
    Departs: hidden keys never count, padding, other documents and those outside a window included. Where keys in the
        future are seen, which the paper does not treat, they count as well, up to the last one.
    """

    per_layer = True
    shift_invariant = True
    citation = """@article{golovneva2024contextual,
  title = {Contextual Position Encoding: Learning to Count What's Important},
  author = {Golovneva, Olga and Wang, Tianlu and Weston, Jason and Sukhbaatar, Sainbayar},
  journal = {arXiv preprint arXiv:2405.18719},
  year = {2024},
  url = {https://arxiv.org/abs/2405.18719}
}"""

    def __init__(
        self, *, head_width: int, positions: int = 64, scaled_gates: bool = True, scaled_term: bool = False
    ) -> None:
        super().__init__()
        need_positive("head_width", head_width)
        need(
            positions >= 2,
            "cope needs at least 2 positions to tell apart",
            f"got {positions}",
            "give more, such as 64",
        )
        self.head_width = head_width
        self.gate_scale = head_width**-0.5 if scaled_gates else 1.0
        self.term_scale = head_width**-0.5 if scaled_term else 1.0
        self.table = nn.Parameter(torch.zeros(positions, head_width))

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias:
        """What each query makes of the vector at the count of each key."""
        check_fit(self.table[None], q.shape[1], q.shape[3])
        wide = torch.promote_types(q.dtype, torch.float32)
        q, k, table = q.to(wide), k.to(wide), self.table.to(wide)
        products = q @ table.mT * self.term_scale
        if where.ordered and not torch.compiler.is_compiling():
            return self._backwards(q, k, products, where)
        count = counts_from(self._gates(q, k, where), where.k_pos[..., 0])
        return read_between(products, count.clamp(max=len(table) - 1))

    def _gates(self, q: Queries, k: Keys, where: Geometry) -> Weights:
        """How much each key counts."""
        scores = q @ k.mT * self.gate_scale
        # hidden before the sigmoid: whatever they hold, they count nothing and get no gradient
        seen = scores if where.sees_all else scores.masked_fill(~where.visible[:, None], float("-inf"))
        return seen.sigmoid()

    def _backwards(self, q: Queries, k: Keys, products: Products, where: Geometry) -> Bias:
        """The same from the last key back, to where all have counted to the end: keys before share the last row."""
        last, stop, parts = products.shape[-1] - 1, k.shape[2], []
        total = products.new_zeros(*products.shape[:3], 1)
        while stop > 0:
            keys = slice(max(0, stop - KEYS), stop)
            gates = self._gates(q, k[:, :, keys], where.block(slice(None), keys))
            count = total + gates.flip(-1).cumsum(-1).flip(-1)
            parts.append(read_between(products, count.clamp(max=last)))
            total, stop = count[..., :1], keys.start
            counting, before = (total.detach()[..., 0] <= last).any(1), where.block(slice(None), slice(0, stop))
            if not counting.any() or not (before.sees_all or (counting & before.visible.any(-1)).any()):
                break
        parts.append(products[..., -1:].expand(*products.shape[:3], stop))
        return torch.cat(parts[::-1], -1)

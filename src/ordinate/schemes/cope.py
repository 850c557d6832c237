"""CoPE: contextual position encoding (Golovneva et al., 2024)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Keys, Queries, Weights
from ordinate.core.tensors import has_free_values
from ordinate.ops.contextual_counts import contextual_positions, interpolate_rows
from ordinate.ops.double_backward import untraceable
from ordinate.ops.relative import check_table
from ordinate.schemes._scheme import Scheme

# keys processed together
KEY_CHUNK = 128
# dot products of each query and each row of the table
TableProducts = Float[Tensor, "b h i rows"]


class Cope(Scheme):
    """CoPE: contextual positions, which count only the keys that a gate selects.

    The gate of a key is between 0 and 1 and depends on query and key, so a head can count words, sentences or
    anything else. The contextual position of a key is the sum of the gates from that key up to the query; its
    learned embedding is multiplied with the query and added to the score.

        gate(i, t) = sigmoid(q_i . k_t / sqrt(d))        for visible keys t, 0 for others

        count(i, j) = min(sum of gate(i, t) over p_t >= p_j, max_positions - 1)

        score(i, j) = q_i . k_j / sqrt(d) + q_i . table[count(i, j)]

    Between integer counts the table is interpolated linearly.

    Enters at: scores (content-dependent).
    Args:
        head_width: channels of a head, d.
        max_positions: rows of the table; counts of max_positions - 1 and more share the last row.
        scaled_gates: whether q.k is divided by sqrt(d) in the gates, as in the published code but not in the text of
            the paper.
        scaled_bias: whether the table's term is divided by sqrt(d) too, as in the published code but not in the
            paper's listing and in x-transformers.
    Raises:
        ValueError: a head width not above zero, or fewer than 2 positions.
    Source: Golovneva et al. 2024, Contextual Position Encoding, its definitions of gates, positions and interpolation
        and the listing of appendix B, https://arxiv.org/abs/2405.18719; the table is initialised to zero, as there.
    Departs: masked keys never count, including padding, other documents and keys outside of a window. Without a
        causal mask, which the paper does not treat, visible future keys count as well.
    """

    per_layer = True
    reads_mask = True
    shift_invariant = True
    citation = """@article{golovneva2024contextual,
  title = {Contextual Position Encoding: Learning to Count What's Important},
  author = {Golovneva, Olga and Wang, Tianlu and Weston, Jason and Sukhbaatar, Sainbayar},
  journal = {arXiv preprint arXiv:2405.18719},
  year = {2024},
  url = {https://arxiv.org/abs/2405.18719}
}"""

    def __init__(
        self, *, head_width: int, max_positions: int = 64, scaled_gates: bool = True, scaled_bias: bool = False
    ) -> None:
        super().__init__()
        need_positive("head_width", head_width)
        need(
            max_positions >= 2,
            "cope needs at least 2 positions to distinguish",
            f"got {max_positions}",
            "give more, such as 64",
        )
        self.head_width = head_width
        self.gate_scale = head_width**-0.5 if scaled_gates else 1.0
        self.bias_scale = head_width**-0.5 if scaled_bias else 1.0
        self.table = nn.Parameter(torch.zeros(max_positions, head_width))

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias:
        """Return the product of each query with the embedding of each key's contextual position."""
        check_table(self.table[None], q.shape[1], q.shape[3])
        wide = torch.promote_types(q.dtype, torch.float32)
        q, k, table = q.to(wide), k.to(wide), self.table.to(wide)
        products = q @ table.mT * self.bias_scale
        if where.consecutive and has_free_values(q) and untraceable(q) is None:
            return self._backwards(q, k, products, where)
        count = contextual_positions(self._gates(q, k, where), where.k_pos[..., 0])
        return interpolate_rows(products, count.clamp(max=len(table) - 1))

    def _gates(self, q: Queries, k: Keys, where: Geometry) -> Weights:
        """Return the gate of each key for each query."""
        scores = q @ k.mT * self.gate_scale
        # masked before the sigmoid: gate and gradient are exactly 0, whatever the masked keys contain
        seen = scores if where.is_unmasked else scores.masked_fill(~where.visible[:, None], float("-inf"))
        return seen.sigmoid()

    def _backwards(self, q: Queries, k: Keys, products: TableProducts, where: Geometry) -> Bias:
        """Compute the bias in chunks from the last key backwards, until all counts reach the last row.

        All earlier keys are clipped to the last row, so their gates need not be computed.
        """
        last, stop, parts = products.shape[-1] - 1, k.shape[2], []
        total = products.new_zeros(*products.shape[:3], 1)
        while stop > 0:
            keys = slice(max(0, stop - KEY_CHUNK), stop)
            gates = self._gates(q, k[:, :, keys], where.block(slice(None), keys))
            count = total + gates.flip(-1).cumsum(-1).flip(-1)
            parts.append(interpolate_rows(products, count.clamp(max=last)))
            total, stop = count[..., :1], keys.start
            counting, before = (total.detach()[..., 0] <= last).any(1), where.block(slice(None), slice(0, stop))
            if not counting.any() or not (before.is_unmasked or (counting & before.visible.any(-1)).any()):
                break
        parts.append(products[..., -1:].expand(*products.shape[:3], stop))
        return torch.cat(parts[::-1], -1)

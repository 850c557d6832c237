"""T5 relative position bias (Raffel et al., 2020)."""

import torch
from torch import nn

from ordinate.core.checks import need, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias
from ordinate.ops.buckets import log_buckets
from ordinate.schemes._scheme import Scheme


class T5(Scheme):
    """T5 relative position bias: add a trained bias for each head and bucket of distances.

        bias(h, i, j) = table[bucket(p_i - p_j), h]

    Small distances have a bucket each, larger ones share logarithmic buckets, and all from `max_distance` on share
    the last. Under a causal mask all buckets are for past keys; otherwise half of them are for future keys.

    Enters at: scores.
    Args:
        heads: heads of the model.
        buckets: rows of the table; bidirectional attention leaves the last of an odd number unused.
        max_distance: start of the last bucket [tokens].
        per_layer: whether each layer of a model has a table of its own (UMT5), where all layers of T5 share one.
    Raises:
        ValueError: fewer than 4 buckets, or a max_distance that leaves no logarithmic bucket.
    Source: Raffel et al. 2020, T5, section 2.1, https://arxiv.org/abs/1910.10683, buckets from its published code.
    Departs: the bias is added to q.k * scale, as for all schemes; T5 itself does not scale q.k (scale = 1).
    """

    shift_invariant = True
    citation = """@article{raffel2020exploring,
  title = {Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer},
  author = {Raffel, Colin and Shazeer, Noam and Roberts, Adam and Lee, Katherine and Narang, Sharan and
            Matena, Michael and Zhou, Yanqi and Li, Wei and Liu, Peter J.},
  journal = {Journal of Machine Learning Research},
  volume = {21},
  year = {2020},
  url = {https://arxiv.org/abs/1910.10683}
}"""

    def __init__(self, *, heads: int, buckets: int = 32, max_distance: int = 128, per_layer: bool = False) -> None:
        super().__init__()
        need_positive("heads", heads)
        need(buckets >= 4, "t5 needs at least 4 buckets", f"got {buckets}", "32 is usual")
        need(
            max_distance > buckets // 2,
            "max_distance must exceed the single-distance buckets",
            f"got {max_distance} with {buckets} buckets",
            f"give more than {buckets // 2}",
        )
        self.heads, self.buckets, self.max_distance = heads, buckets, max_distance
        self.bias_reach, self.per_layer = max_distance, per_layer
        self.table = nn.Parameter(torch.randn(buckets, heads) * 0.02)

    def bias(self, where: Geometry) -> Bias:
        bucket = log_buckets(
            where.offset[..., 0],
            buckets=self.buckets,
            max_distance=self.max_distance,
            bidirectional=not where.is_causal,
        )
        return nn.functional.embedding(bucket, self.table).permute(0, 3, 1, 2)

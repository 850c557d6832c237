"""Contents meet offsets, and offsets meet contents."""

import copy
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.checks import need, need_known, need_positive
from ordinate.geometry import Geometry
from ordinate.ops.buckets import signed_log_buckets
from ordinate.ops.relative import Projection, Rows, Vectors, look_up
from ordinate.scheme import Scheme
from ordinate.shapes import Bias, Keys, Positions, Queries

Terms = Literal["both", "c2p", "p2c"]


@dataclass(frozen=True)
class Version:
    """What versions of DeBERTa differ in.

    Args:
        mirrored: whether p2c reads the row of the opposite offset, as the paper writes, unlike its published code.
        rescale: whether all is divided by the root of the number of terms too: sqrt(3d), with one term sqrt(2d).
            Otherwise queries stay as they are and all is divided by sqrt(d).
        shared: whether one table serves all layers, and each reads it by its own projections of contents, as the
            published models of versions 2 and 3 do. Then K and Q are those of keys and queries.
        epsilon: the vectors of the table are layer-normed, with this added to what they are divided by; None: they
            are not.
    """

    mirrored: bool = False
    rescale: bool = True
    shared: bool = False
    epsilon: float | None = None


class Deberta(Scheme):
    """Let the query's content meet the offset as a key, and the key's content meet the offset as a query.

    A table has a vector for each offset, near ones one by one and far ones in buckets that widen. One projection
    makes keys of them, another makes queries.

        score(i, j) = (q_i . k_j + q_i . K t[r] + k_j . (Q t[r] + b)) / sqrt(3d)

        r = clip(span + bucket(p_i - p_j), 0, 2 span - 1),   span = buckets, or max_distance without buckets

    Enters at: queries, which are divided by sqrt(3), and scores, from content too.
    Args:
        width: columns of the model, and of the table.
        heads: heads of the model.
        head_width: channels of a head, d.
        max_distance: offsets from here on share a vector [tokens].
        buckets: buckets of each side up to there, half of them single offsets; None: every offset is single.
        terms: `c2p` (content to position: the second term), `p2c` (position to content: the third), or both.
        version: what else versions of the model differ in.
    Raises:
        ValueError: a size not above zero, unknown terms, an odd or too small number of buckets, a max_distance that
            leaves no far bucket, or `mirrored` without p2c.
    Source: He et al. 2021, DeBERTa, equation 4, https://arxiv.org/abs/2006.03654; buckets from the published code of
        version 2. All but b, which is zero, are born normal with a standard deviation of 0.02, as there.
    Departs: unless the version says `shared`, each layer has a table of its own. No dropout, and no bias in K: the
        softmax takes it out again.
    """

    per_layer = True
    whole = True
    shift_invariant = True
    citation = """@inproceedings{he2021deberta,
  title = {DeBERTa: Decoding-enhanced BERT with Disentangled Attention},
  author = {He, Pengcheng and Liu, Xiaodong and Gao, Jianfeng and Chen, Weizhu},
  booktitle = {International Conference on Learning Representations},
  year = {2021},
  url = {https://arxiv.org/abs/2006.03654}
}"""

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        head_width: int,
        max_distance: int = 512,
        buckets: int | None = 256,
        terms: Terms = "both",
        version: Version | None = None,
    ) -> None:
        super().__init__()
        version = Version() if version is None else version
        sizes = {"width": width, "heads": heads, "head_width": head_width, "max_distance": max_distance}
        for name, value in sizes.items():
            need_positive(name, value)
        _check_options(max_distance, buckets, terms, version.mirrored)
        self.width, self.heads, self.head_width = width, heads, head_width
        self.max_distance, self.buckets, self.mirrored = max_distance, buckets, version.mirrored
        self.share = (1 / (3 if terms == "both" else 2)) ** 0.5 if version.rescale else 1.0
        self.span = max_distance if buckets is None else buckets
        self.terms: Terms = terms
        self.shared, self.per_layer = version.shared, not version.shared
        self.table = nn.Parameter(torch.randn(2 * self.span, width) * 0.02)
        self.norm = None if version.epsilon is None else nn.LayerNorm(width, eps=version.epsilon)
        self.key: nn.Linear | Projection | None = None
        self.query: nn.Linear | Projection | None = None
        if not version.shared:
            self.key = _born(nn.Linear(width, heads * head_width, bias=False)) if terms != "p2c" else None
            self.query = _born(nn.Linear(width, heads * head_width)) if terms != "c2p" else None

    @property
    def hooks(self) -> tuple[str, ...]:
        """Without rescaling the queries stay as they are; a shared table is read by projections of the layers."""
        used = ("content_bias",) if self.share == 1.0 else ("encode_query", "content_bias")
        return (*used, "borrow") if self.shared else used

    def borrow(self, query: Projection, key: Projection) -> Scheme:
        """The same inside one layer, which lends its projections."""
        lent = copy.copy(self)
        lent.shared = False
        lent.key, lent.query = key if self.terms != "p2c" else None, query if self.terms != "c2p" else None
        return lent

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        """Divide the queries by the root of the number of terms."""
        return q * self.share

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias:
        """What queries make of offsets, and what offsets make of keys; the queries come divided."""
        need(
            not self.shared,
            "a shared table is read by the projections of a layer",
            "got none",
            "use it in a model whose mixer lends them (softmax), by itself, or leave version.shared out",
        )
        (rows, mirrored), terms = self._rows(where), []
        if self.key is not None:
            terms.append(look_up(q, self._vectors(self.key, q.dtype), rows))
        if self.query is not None:
            terms.append(look_up(k, self._vectors(self.query, k.dtype), mirrored.mT).mT * self.share)
        return sum(terms[1:], terms[0]) * self.head_width**-0.5

    def vectors(self, where: Geometry) -> Vectors:
        """The projected vectors of the offsets."""
        asked, held = (
            None if project is None else self._vectors(project, self.table.dtype).index_select(1, rows[0, 0])
            for project, rows in zip((self.key, self.query), self._rows(where), strict=True)
        )
        asked = None if asked is None else asked * self.head_width**-0.5
        held = None if held is None else held * (self.share * self.head_width**-0.5)
        return Vectors(asked=asked, held=held, reach=self.max_distance)

    def _vectors(self, project: nn.Linear | Projection, dtype: torch.dtype) -> Float[Tensor, "h rows d"]:
        wide = torch.promote_types(dtype, torch.float32)
        bias = None if project.bias is None else project.bias.to(wide)
        table, norm = self.table.to(wide), self.norm
        if norm is not None:
            sizes = list(norm.normalized_shape)
            table = nn.functional.layer_norm(table, sizes, norm.weight.to(wide), norm.bias.to(wide), norm.eps)
        vectors = nn.functional.linear(table, project.weight.to(wide), bias)
        return vectors.unflatten(-1, (-1, self.head_width)).transpose(0, 1)

    def _rows(self, where: Geometry) -> tuple[Rows, Rows]:
        """The row that a query meets at each offset, and the row that a key meets."""
        offset = where.offset[..., 0]
        if self.buckets is not None:
            offset = signed_log_buckets(offset, buckets=self.buckets, max_distance=self.max_distance)
        met = offset, -offset if self.mirrored else offset
        asked, held = ((self.span + x).clamp(0, 2 * self.span - 1) for x in met)
        return asked, held


def _born(project: nn.Linear) -> nn.Linear:
    nn.init.normal_(project.weight, std=0.02)
    if project.bias is not None:
        nn.init.zeros_(project.bias)
    return project


def _check_options(max_distance: int, buckets: int | None, terms: Terms, mirrored: bool) -> None:
    need_known("set of terms", terms, get_args(Terms))
    need(
        not mirrored or terms != "c2p",
        "mirrored is about p2c",
        "got terms='c2p'",
        "leave it out, or give terms='both'",
    )
    if buckets is None:
        return
    need(
        buckets >= 4 and buckets % 2 == 0,
        "deberta needs an even number of at least 4 buckets",
        f"got {buckets}",
        "256 is usual; None gives every offset its own vector",
    )
    need(
        max_distance > buckets // 2 + 1,
        "max_distance must lie beyond the buckets of single offsets",
        f"got {max_distance} with {buckets} buckets",
        f"give more than {buckets // 2 + 1}",
    )

"""DeBERTa: disentangled attention (He et al., 2021)."""

import copy
import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_known, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Keys, Positions, Queries
from ordinate.ops.buckets import signed_log_buckets
from ordinate.ops.linear_layer import weight_and_bias
from ordinate.ops.relative import Projection, RelativeVectors, RowIndex, chosen_rows, gather_products
from ordinate.schemes._scheme import Scheme

DebertaTerms = Literal["both", "c2p", "p2c"]


@dataclass(frozen=True)
class DebertaVersion:
    """Differences between versions of DeBERTa.

    Args:
        mirrored: whether p2c reads the row of the opposite offset, as in the paper, unlike its published code.
        rescale: whether the scores are divided by sqrt(d * (1 + number of terms)): sqrt(3d), with one term sqrt(2d).
            Otherwise they are divided by sqrt(d).
        shared: whether all layers share one table, which each layer projects by its own query and key projections, as
            published models of versions 2 and 3 do.
        norm_eps: epsilon of the layer norm applied to the table; None: no layer norm.
        unordered: whether max_distance is at most half of the buckets. Offsets beyond that half then have buckets in
            reverse order, as the published code computes them; published models do not have such sizes.
    """

    mirrored: bool = False
    rescale: bool = True
    shared: bool = False
    norm_eps: float | None = None
    unordered: bool = False


class Deberta(Scheme):
    """Disentangled attention: add content-to-position and position-to-content terms to the scores.

    Relative position embeddings t[r] are projected to keys by K and to queries by Q. Near offsets have an embedding
    each, distant ones share logarithmic buckets.

        score(i, j) = (q_i . k_j + q_i . K t[r] + k_j . (Q t[r] + b)) / sqrt(3d)

        r = clip(span + bucket(p_i - p_j), 0, 2 span - 1),   span = buckets, or max_distance without buckets

    Enters at: queries, which are divided by sqrt(3), and scores (content-dependent).
    Args:
        width: model width, and width of the embeddings.
        heads: heads of the model.
        head_width: channels of a head, d.
        max_distance: larger offsets share an embedding [tokens].
        buckets: buckets per side up to max_distance, half of them for single offsets; None: an embedding per offset.
        terms: `c2p` (content to position: the second term), `p2c` (position to content: the third), or `both`.
        version: other differences between versions of the model.
    Raises:
        ValueError: a size not above zero, unknown terms, a single bucket, a max_distance that leaves no logarithmic
            bucket unless the version is `unordered`, `unordered` without effect, or `mirrored` without p2c.
    Source: He et al. 2021, DeBERTa, equation 4, https://arxiv.org/abs/2006.03654; buckets from the published code of
        version 2. All but b, which is zero, are initialised normal with a standard deviation of 0.02, as there.
    Departs: unless the version has `shared`, each layer has its own table. No dropout, and no bias in K, which the
        softmax would cancel.
    """

    per_layer = True
    integer_positions = True
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
        terms: DebertaTerms = "both",
        version: DebertaVersion | None = None,
    ) -> None:
        super().__init__()
        version = DebertaVersion() if version is None else version
        sizes = {"width": width, "heads": heads, "head_width": head_width, "max_distance": max_distance}
        for name, value in sizes.items():
            need_positive(name, value)
        _check_options(max_distance, buckets, terms, version)
        self.width, self.heads, self.head_width = width, heads, head_width
        self.max_distance, self.buckets, self.mirrored = max_distance, buckets, version.mirrored
        self.share = (1 / (3 if terms == "both" else 2)) ** 0.5 if version.rescale else 1.0
        self.span = max_distance if buckets is None else buckets
        self.terms: DebertaTerms = terms
        self.unordered = version.unordered
        self.shared, self.per_layer = version.shared, not version.shared
        self.table = nn.Parameter(torch.randn(2 * self.span, width) * 0.02)
        self.norm = None if version.norm_eps is None else nn.LayerNorm(width, eps=version.norm_eps)
        self.key: nn.Linear | Projection | None = None
        self.query: nn.Linear | Projection | None = None
        if not version.shared:
            self.key = _initialised(nn.Linear(width, heads * head_width, bias=False)) if terms != "p2c" else None
            self.query = _initialised(nn.Linear(width, heads * head_width)) if terms != "c2p" else None

    @property
    def hooks(self) -> tuple[str, ...]:
        """Hooks in use: without rescaling, queries are unchanged; a shared table needs the layer's projections."""
        used = ("content_bias",) if self.share == 1.0 else ("encode_query", "content_bias")
        return (*used, "bind_projections") if self.shared else used

    def bind_projections(self, query: Projection, key: Projection) -> Scheme:
        """Return a copy of this scheme that uses the query and key projections of a layer."""
        bound = copy.copy(self)
        bound.shared = False
        bound.key, bound.query = key if self.terms != "p2c" else None, query if self.terms != "c2p" else None
        return bound

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        """Divide the queries by the square root of the number of terms, so that q.k has the scale of the others."""
        return q * self.share

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias:
        """Return the content-to-position and position-to-content terms; `q` is already divided by `encode_query`."""
        need(
            not self.shared,
            "a shared table needs the query and key projections of a layer",
            "got none",
            "use it as the only scheme of a model whose mixer provides them (softmax), or leave version.shared out",
        )
        (rows, mirrored), terms = self._rows(where), []
        if self.key is not None:
            terms.append(gather_products(q, self._vectors(self.key, q.dtype), rows))
        if self.query is not None:
            terms.append(gather_products(k, self._vectors(self.query, k.dtype), mirrored.mT).mT * self.share)
        return sum(terms[1:], terms[0]) * self.head_width**-0.5

    def relative_vectors(self, where: Geometry) -> RelativeVectors:
        """Return the projected embedding of each offset."""
        asked, held = (
            None if project is None else chosen_rows(self._vectors(project, self.table.dtype), rows[0, 0])
            for project, rows in zip((self.key, self.query), self._rows(where), strict=True)
        )
        asked = None if asked is None else asked * self.head_width**-0.5
        held = None if held is None else held * (self.share * self.head_width**-0.5)
        return RelativeVectors(query_vectors=asked, key_vectors=held, reach=self._reach)

    @property
    def _reach(self) -> float:
        """Offset from which on all have one row, on either side.

        An odd number of buckets, 2M + 1, has one more row for future keys: from bucket 2M + 1 on.
        """
        if self.unordered:
            return math.inf
        single = 0 if self.buckets is None else self.buckets // 2
        if single < 2 or self.buckets == 2 * single:
            return self.max_distance
        return math.ceil(single * ((self.max_distance - 1) / single) ** (single / (single - 1))) + 1

    def _vectors(self, project: nn.Module | Projection, dtype: torch.dtype) -> Float[Tensor, "h rows d"]:
        wide = torch.promote_types(dtype, torch.float32)
        weight, bias = project if isinstance(project, Projection) else weight_and_bias(project)
        bias = None if bias is None else bias.to(wide)
        table, norm = self.table.to(wide), self.norm
        if norm is not None:
            sizes = list(norm.normalized_shape)
            table = nn.functional.layer_norm(table, sizes, norm.weight.to(wide), norm.bias.to(wide), norm.eps)
        vectors = nn.functional.linear(table, weight.to(wide), bias)
        return vectors.unflatten(-1, (-1, self.head_width)).transpose(0, 1)

    def _rows(self, where: Geometry) -> tuple[RowIndex, RowIndex]:
        """Return the table row of each pair for the content-to-position and the position-to-content term."""
        offset = where.offset[..., 0]
        if self.buckets is not None:
            offset = signed_log_buckets(offset, buckets=self.buckets, max_distance=self.max_distance)
        met = offset, -offset if self.mirrored else offset
        asked, held = ((self.span + x).clamp(0, 2 * self.span - 1) for x in met)
        return asked, held


def _initialised(project: nn.Linear) -> nn.Linear:
    nn.init.normal_(project.weight, std=0.02)
    if project.bias is not None:
        nn.init.zeros_(project.bias)
    return project


def _check_options(max_distance: int, buckets: int | None, terms: DebertaTerms, version: DebertaVersion) -> None:
    need_known("set of terms", terms, get_args(DebertaTerms))
    need(
        not version.mirrored or terms != "c2p",
        "mirrored applies to the p2c term only",
        "got terms='c2p'",
        "leave it out, or give terms='both'",
    )
    if buckets is None:
        must, remedy = "unordered is an option of buckets", "leave version.unordered out"
        need(not version.unordered, must, "got buckets=None", remedy)
        return
    need(
        buckets >= 2,
        "deberta needs at least 2 buckets",
        f"got {buckets}",
        "256 is usual; None gives each offset its own embedding",
    )
    single, came = buckets // 2, f"got {max_distance} with {buckets} buckets"
    if version.unordered:
        must = "unordered buckets need a max_distance of at most half of their number"
        need(max_distance <= single, must, came, "leave version.unordered out, or give less")
        return
    must = "max_distance must exceed the single-offset buckets"
    need(max_distance > single + 1, must, came, f"give more than {single + 1}")

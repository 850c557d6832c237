"""RoPE: rotary position embedding (Su et al., 2021)."""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from ordinate.core.checks import need, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Keys, Positions, Queries
from ordinate.core.tensors import has_free_values, in_float64
from ordinate.ops.per_query_rotation import per_query_rotary_scores
from ordinate.ops.rotate import Angles, Layout, Rotation, rotate
from ordinate.schemes._scheme import Encoder, Scheme
from ordinate.schemes.spectra._spectrum import Spectrum

# a mask of queries, and a length at which the rates are theirs [tokens]
Stage = tuple[Bool[Tensor, "#b i"], float]


class Rope(Scheme):
    """RoPE: rotate each channel pair of queries and keys by an angle proportional to the position.

        angle(p, m) = p * theta^(-2m/d),  m = 0 .. d/2 - 1        [radians]

    In q.k the rotations combine to one by the difference of the angles, so scores depend on the offset p_q - p_k.

    Enters at: queries and keys; at the scores instead of q.k if the spectrum depends on the length at each query,
        since the rotation of a key then depends on the query.
    Args:
        head_width: channels of a head.
        theta: base of the wavelengths; the longest is 2 pi theta^(1-2/d) tokens.
        layout: which channels form a pair: `half` pairs m with m + d/2 (GPT-NeoX, Llama in transformers),
            `interleaved` pairs 2m with 2m + 1 (the paper, GPT-J). They are equal up to a permutation of the channels;
            a checkpoint needs its own layout.
        rotary_dim: number of rotated channels, d, from the first on; the others are unchanged. None: all. Where it is
            odd, d + 1 channels are rotated, at the rates of d, as by GPT-NeoX in transformers.
        spectrum: frequency scaling for sequences longer than in training; None: none.
    Raises:
        ValueError: an odd head width, or more rotated channels than the head has.
    Source: Su et al. 2021, RoFormer, equation 34, https://arxiv.org/abs/2104.09864; `rotary_dim` as in GPT-NeoX,
    GPT-J. Departs: nowhere. Angles in float64, the rotation in float32 at least, whatever the model's type.
    """

    shift_invariant = True
    citation = """@article{su2021roformer,
  title = {RoFormer: Enhanced Transformer with Rotary Position Embedding},
  author = {Su, Jianlin and Lu, Yu and Pan, Shengfeng and Murtadha, Ahmed and Wen, Bo and Liu, Yunfeng},
  journal = {arXiv preprint arXiv:2104.09864},
  year = {2021},
  url = {https://arxiv.org/abs/2104.09864}
}"""

    def __init__(
        self,
        *,
        head_width: int,
        theta: float = 10_000.0,
        layout: Layout = "half",
        rotary_dim: int | None = None,
        spectrum: Spectrum | None = None,
    ) -> None:
        super().__init__()
        need_positive("theta", theta)
        self.rotary_dim = head_width if rotary_dim is None else rotary_dim
        need(
            self.rotary_dim > 0 and (rotary_dim is not None or head_width % 2 == 0),
            "rope needs an even head width" if rotary_dim is None else "rope rotates one pair of channels at least",
            f"got {self.rotary_dim}",
            "choose heads that divide width into even parts" if rotary_dim is None else "give 2, 4 or more",
        )
        need(
            self.rotary_dim + self.rotary_dim % 2 <= head_width,
            "rope turns channels of a head",
            f"got rotary_dim {self.rotary_dim} of {head_width}",
            "give fewer",
        )
        self.head_width, self.theta, self.layout = head_width, theta, layout
        self.spectrum = Spectrum() if spectrum is None else spectrum
        # with length-dependent rates, a shift of all positions changes the rates
        self.shift_invariant = self.spectrum.length_thresholds == ()
        # validates the spectrum against the number of channels now instead of in the first forward pass
        self.spectrum.rates_at(torch.zeros(1, device="cpu"), self.rotary_dim, theta)

    @classmethod
    def from_rope_parameters(
        cls,
        parameters: Mapping[str, Any],
        *,
        head_width: int,
        max_length: int | None = None,
        layout: Layout = "half",
    ) -> "Rope":
        """Build the RoPE of a transformers model.

        Args:
            parameters: its `rope_parameters` (formerly `rope_scaling` and `rope_theta`), as in its config.json; null
                values count as missing.
            head_width: channels of a head.
            max_length: its `max_position_embeddings`, used for a length missing in the dictionary [tokens].
            layout: which channels form a pair in that model.

        Raises:
            ValueError: an unknown rope_type or key, or a missing field.
        """
        spectrum = Spectrum.from_rope_parameters(parameters, max_length=max_length)
        parameters = {key: value for key, value in parameters.items() if value is not None}
        # `proportional` applies partial_rotary_factor itself, with rates spread over the whole head
        share = 1.0 if "partial_rotary_factor" in spectrum.hf_fields else parameters.get("partial_rotary_factor", 1.0)
        theta, rotated = parameters.get("rope_theta", 10_000.0), int(head_width * share)
        return cls(head_width=head_width, theta=theta, layout=layout, rotary_dim=rotated, spectrum=spectrum)

    @property
    def hooks(self) -> tuple[str, ...]:
        """Hooks in use: queries and keys, or the scores if the rates depend on the length at each query."""
        return ("score",) if self._rates_by_query else ("encode_query", "encode_key")

    @property
    def _rates_by_query(self) -> bool:
        return self.spectrum.length_thresholds != () and not self.spectrum.whole_sequence

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        return self.make_encoders(pos)[0](q)

    def encode_key(self, k: Keys, pos: Positions) -> Keys:
        return self.make_encoders(pos)[1](k)

    def make_encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """Return one rotation for queries and keys; the identity if the rates depend on the length at each query."""
        if self._rates_by_query:
            return partial(super().encode_query, pos=pos), partial(super().encode_key, pos=pos)
        whole = self.spectrum.whole_sequence and pos.numel() > 0
        angles = self.angles(pos, pos[..., 0].max() + 1) if whole else self.angles(pos)
        rotation = Rotation.by(angles, self.layout, self.spectrum.query_key_scale)
        return rotation, rotation

    def score(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Return q.k with query and keys rotated at the rates of each query's own length (its position + 1)."""
        if not self._rates_by_query:
            return None
        wide = torch.promote_types(q.dtype, torch.float32)
        q, k, length = q.to(wide), k.to(wide), in_float64(where.q_pos[..., 0]) + 1
        if self.spectrum.length_thresholds is None:
            return self._scores_per_query(q, k, where, self.spectrum.rates_at(length, self.rotary_dim, self.theta))
        stages = self._stages(length)
        if len(length) == 1 or not has_free_values(length) or all(bool(own.any(1).all()) for own, _ in stages):
            return self._staged_scores(q, k, (where.q_pos, where.k_pos), stages)
        # one after the other, so that the rounding of a sequence does not depend on the others in the batch
        made = []
        for i in range(len(q)):
            one, keys = slice(i, i + 1), slice(i % len(where.k_pos), i % len(where.k_pos) + 1)
            pos = where.q_pos[one], where.k_pos[keys]
            made.append(self._staged_scores(q[one], k[one], pos, self._stages(length[one])))
        return torch.cat(made)

    def _staged_scores(self, q: Queries, k: Keys, pos: tuple[Tensor, Tensor], stages: list[Stage]) -> Bias:
        """Return the scores if the queries between two breaks have the same rates."""
        turned = []
        for own, example in stages:
            rates = self.spectrum.rates_at(
                own.new_full((1, 1), example, dtype=torch.float64), self.rotary_dim, self.theta
            )
            queries, keys = self._turned(q, k, pos, rates)
            mine = own.to(q.device)[:, None, :, None]
            turned.append((torch.where(mine, queries, 0.0) if len(stages) > 1 else queries, keys))
        # channels of all stages side by side, zeros in those of others: the scores are held once, whatever the stages
        all_queries, all_keys = (
            torch.cat(part, -1) if len(part) > 1 else part[0] for part in zip(*turned, strict=True)
        )
        return all_queries @ all_keys.mT

    def angles(self, pos: Positions, length: float | Real[Tensor, ""] = 0.0) -> Angles:
        """Return the rotation angle of each channel pair at each position, at this sequence length [radians]."""
        place = in_float64(pos[..., :1])
        read = in_float64(length) if isinstance(length, Tensor) else place.new_full((), length)
        return place * self.spectrum.rates_at(read, self.rotary_dim, self.theta)

    def _scores_per_query(self, q: Queries, k: Keys, where: Geometry, rates: Float[Tensor, "#b i pairs"]) -> Bias:
        """Return the scores if each query has its own rates."""
        alike = (rates == rates[:, :1]).flatten(1).all(1)
        # sequences within the trained length, and single new tokens, have one set of rates: a matrix product suffices
        some = has_free_values(rates) and rates.shape[1] > 0 and bool(alike.any())
        if some and bool(alike.all()):
            return self._scores(q, k, where, rates[:, :1])
        scores = per_query_rotary_scores(
            q, k, in_float64(where.offset[..., 0]), rates, self.layout, self.spectrum.query_key_scale
        )
        if not some:
            return scores
        # chosen per sequence, so that the rounding of one does not depend on the others in the batch
        return torch.where(alike.to(q.device)[:, None, None, None], self._scores(q, k, where, rates[:, :1]), scores)

    def _scores(self, q: Queries, k: Keys, where: Geometry, rates: Float[Tensor, "#b 1 pairs"]) -> Bias:
        """Return the scores if all queries of a sequence have the same rates."""
        queries, keys = self._turned(q, k, (where.q_pos, where.k_pos), rates)
        return queries @ keys.mT

    def _turned(
        self, q: Queries, k: Keys, pos: tuple[Tensor, Tensor], rates: Float[Tensor, "#b 1 pairs"]
    ) -> tuple[Queries, Keys]:
        """Return queries and keys rotated at one set of rates for each sequence."""
        angles = [in_float64(x[..., :1]) * rates for x in pos]
        scale = self.spectrum.query_key_scale
        return rotate(q, angles[0], self.layout, scale), rotate(k, angles[1], self.layout, scale)

    def _stages(self, length: Tensor) -> list[Stage]:
        """Return masks of the queries between two breaks of the rates, in rising order; of those that any reaches."""
        breaks = self.spectrum.length_thresholds or ()
        nested = [torch.ones_like(length, dtype=torch.bool), *(length > end for end in breaks)]
        own = [*(here & ~further for here, further in pairwise(nested)), nested[-1]]
        stages = list(zip(own, (0.0, *(end + 1.0 for end in breaks)), strict=True))
        if not has_free_values(length):
            return stages
        # without queries none is reached, and any rates will do
        return [stage for stage in stages if bool(stage[0].any())] or stages[:1]

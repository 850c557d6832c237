"""Rotation of queries and keys."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.checks import need, need_positive
from ordinate.geometry import Geometry
from ordinate.ops.relate import related
from ordinate.ops.rotate import Angles, Layout, Rotation, rotate
from ordinate.scheme import Encoder, Scheme
from ordinate.shapes import Bias, Keys, Positions, Queries
from ordinate.spectrum import Spectrum


class Rope(Scheme):
    """Rotate each pair of channels of queries and keys by an angle that grows with position.

        angle(p, m) = p * theta^(-2m/d),  m = 0 .. d/2 - 1        [radians]

    Turning both by their own angles leaves in q.k their difference only: q and k meet at p_q - p_k.

    Enters at: queries and keys; at the scores in place of q.k with a spectrum that depends on the length of the text,
        since each query then turns the keys at rates of its own.
    Args:
        head_width: channels of a head.
        theta: base of the wavelengths; the longest is 2 pi theta^(1-2/d) tokens.
        layout: which channels pair up: `half` pairs m with m + d/2 (GPT-NeoX, Llama in transformers), `interleaved`
            pairs 2m with 2m + 1 (the paper, GPT-J). The two are one scheme after a permutation of the channels; a
            checkpoint is right with its own layout only.
        rotated: how many channels turn, d, from the first on; the others carry no position. None: all of them.
        spectrum: how the rates are stretched for texts longer than those of training; None: not at all.
    Raises:
        ValueError: an odd number of channels would turn, or more than the head has.
    Source: Su et al. 2021, RoFormer, equation 34, https://arxiv.org/abs/2104.09864; `rotated` as in GPT-NeoX, GPT-J.
    Departs: nowhere. Angles in float64, the rotation in float32 at least, whatever the model's type.
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
        rotated: int | None = None,
        spectrum: Spectrum | None = None,
    ) -> None:
        super().__init__()
        need_positive("theta", theta)
        self.rotated = head_width if rotated is None else rotated
        need(
            self.rotated > 0 and self.rotated % 2 == 0,
            f"rope needs an even {'head width' if rotated is None else 'number of rotated channels'}",
            f"got {self.rotated}",
            "choose heads that divide width into even parts" if rotated is None else "give 2, 4 or more",
        )
        need(
            self.rotated <= head_width,
            "rope turns channels of a head",
            f"got rotated {self.rotated} of {head_width}",
            "give fewer",
        )
        self.head_width, self.theta, self.layout = head_width, theta, layout
        self.spectrum = Spectrum() if spectrum is None else spectrum
        # where the length of the text decides the rates, so does the position of a query
        self.shift_invariant = self.spectrum.breaks == ()
        # numbers that do not fit the channels are refused now, not in the first step
        self.spectrum.rates_at(torch.zeros(1, device="cpu"), self.rotated, theta)

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, Any],
        *,
        head_width: int,
        max_length: int | None = None,
        layout: Layout = "half",
    ) -> "Rope":
        """The rope of a model of transformers.

        Args:
            parameters: its `rope_parameters` (once `rope_scaling` beside `rope_theta`), as in its config.json; null
                means left out.
            head_width: channels of a head.
            max_length: its `max_position_embeddings`, where the dictionary leaves a length out [tokens].
            layout: which channels pair up in that model.

        Raises:
            ValueError: an unknown rope_type or key, or a missing number.
        """
        spectrum = Spectrum.of(parameters, max_length=max_length)
        parameters = {key: value for key, value in parameters.items() if value is not None}
        # what the spectrum reads itself, it spreads over the whole head
        share = 1.0 if "partial_rotary_factor" in spectrum.fields else parameters.get("partial_rotary_factor", 1.0)
        theta, rotated = parameters.get("rope_theta", 10_000.0), int(head_width * share)
        return cls(head_width=head_width, theta=theta, layout=layout, rotated=rotated, spectrum=spectrum)

    @property
    def hooks(self) -> tuple[str, ...]:
        """Queries and keys, or the scores where the length of the text decides the rates."""
        return ("encode_query", "encode_key") if self.spectrum.breaks == () else ("score",)

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        """Rotate the queries."""
        return self.encoders(pos)[0](q)

    def encode_key(self, k: Keys, pos: Positions) -> Keys:
        """Rotate the keys."""
        return self.encoders(pos)[1](k)

    def encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """One rotation for queries and keys; none where the length of the text decides the rates."""
        if self.spectrum.breaks != ():
            return partial(super().encode_query, pos=pos), partial(super().encode_key, pos=pos)
        rotation = Rotation.by(self.angles(pos), self.layout, self.spectrum.magnitude)
        return rotation, rotation

    def score(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Let each query turn itself and all keys at the rates of its own length."""
        if self.spectrum.breaks == ():
            return None
        wide = torch.promote_types(q.dtype, torch.float32)
        q, k, length = q.to(wide), k.to(wide), where.q_pos[..., 0].double() + 1
        if self.spectrum.breaks is None:
            return self._each(q, k, where, self.spectrum.rates_at(length, self.rotated, self.theta))
        scores = None
        for within, example in self._stages(length):
            rates = self.spectrum.rates_at(length.new_full((1, 1), example), self.rotated, self.theta)
            stage = self._met(q, k, where, rates)
            scores = stage if scores is None else torch.where(within[:, None, :, None], stage, scores)
        return scores

    def angles(self, pos: Positions, length: float = 0.0) -> Angles:
        """The angle of each pair of channels at each position, in a text of this length [radians]."""
        read = torch.tensor(length, dtype=torch.float64, device=pos.device)
        return pos[..., :1].double() * self.spectrum.rates_at(read, self.rotated, self.theta)

    def _each(self, q: Queries, k: Keys, where: Geometry, rates: Float[Tensor, "#b i pairs"]) -> Bias:
        """q.k where each query has rates of its own."""
        alike = (rates == rates[:, :1]).flatten(1).all(1)
        # in rows of a short text, or for one new token, a product of matrices will do
        some = not torch.compiler.is_compiling() and rates.shape[1] > 0 and bool(alike.any())
        if some and bool(alike.all()):
            return self._met(q, k, where, rates[:, :1])
        scores = related(q, k, where.offset[..., 0].double(), rates, self.layout, self.spectrum.magnitude)
        if not some:
            return scores
        # a row is scored in the same way in every batch
        return torch.where(alike[:, None, None, None], self._met(q, k, where, rates[:, :1]), scores)

    def _met(self, q: Queries, k: Keys, where: Geometry, rates: Float[Tensor, "#b 1 pairs"]) -> Bias:
        """q.k where all queries of a row turn at the same rates."""
        angles = [pos[..., :1].double() * rates for pos in (where.q_pos, where.k_pos)]
        turned = [rotate(x, by, self.layout, self.spectrum.magnitude) for x, by in zip((q, k), angles, strict=True)]
        return turned[0] @ turned[1].mT

    def _stages(self, length: Tensor) -> list[tuple[Bool[Tensor, "#b i"], float]]:
        """The queries past each break and a length that has its rates, from the shortest on."""
        stages = [(length > floor, floor + 1.0) for floor in (-1, *(self.spectrum.breaks or ()))]
        if torch.compiler.is_compiling():
            return stages
        # what no query has reached is not computed, nor what all have passed
        reached = [stage for place, stage in enumerate(stages) if place == 0 or bool(stage[0].any())]
        passed = sum(bool(within.all()) for within, _ in reached[1:])
        return reached[passed:]

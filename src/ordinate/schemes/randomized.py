"""Random positions from a longer range while training."""

import random
from dataclasses import replace
from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.checks import need, need_known, need_positive
from ordinate.geometry import Geometry
from ordinate.scheme import Scheme

Evaluation = Literal["plain", "even", "drawn"]


class Randomized(Scheme):
    """Say in training that the tokens stand at random places of a longer text, in order.

        p  ->  id[p],    id[0] < id[1] < ...  drawn from 0 .. max_length - 1 for each forward pass, none twice

    A model that meets all places of a long text in short ones does not find those of a long text strange. It marks
    nothing itself: add it to a scheme that does, as in `randomized+learned`.

    Enters at: positions.
    Args:
        max_length: ids are drawn below this, and positions must lie below it: the longest text ever read [tokens].
        evaluation: what becomes of positions when the model is not training. `plain` leaves them as they are; `even`
            spreads `length` of them over the whole range, id[p] = floor(p max_length / length); `drawn` draws
            `length` ids once for all. All give a token the same id however much has been read, so that a cache is
            right.
        length: the longest text of evaluation, for `even` and `drawn` [tokens].
        seed: what `drawn` draws from; None: 0.
    Raises:
        ValueError: a position at or beyond max_length (or, in evaluation, beyond length), a fractional one, training
            with a cache, whose tokens would get other ids with each piece, or an option without effect.
    Source: Ruoss et al. 2023, Randomized Positional Encodings Boost Length Generalization of Transformers, section 3,
        https://arxiv.org/abs/2305.16843, and its published code.
    Departs: the published code draws in evaluation as in training. For relative encodings it draws a sorted list of
        distances instead of positions; here a distance is that of two drawn positions.
    """

    whole = True
    shift_invariant = True
    citation = """@inproceedings{ruoss2023randomized,
  title = {Randomized Positional Encodings Boost Length Generalization of Transformers},
  author = {Ruoss, Anian and Del{\\'e}tang, Gr{\\'e}goire and Genewein, Tim and Grau-Moya, Jordi and Csord{\\'a}s,
            R{\\'o}bert and Bennani, Mehdi and Legg, Shane and Veness, Joel},
  booktitle = {Proceedings of the 61st Annual Meeting of the Association for Computational Linguistics (Volume 2:
               Short Papers)},
  year = {2023},
  url = {https://aclanthology.org/2023.acl-short.161}
}"""

    def __init__(
        self,
        *,
        max_length: int,
        evaluation: Evaluation = "plain",
        length: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        need_positive("max_length", max_length)
        need_known("evaluation", evaluation, get_args(Evaluation))
        plain = evaluation == "plain"
        came = f"got length={length} with evaluation={evaluation!r}"
        need((length is None) == plain, "length says how far even and drawn ids reach", came, "give both, or neither")
        need(
            seed is None or evaluation == "drawn",
            "seed says what evaluation='drawn' draws from",
            f"got seed={seed} with evaluation={evaluation!r}, where it has no effect",
            "leave it out",
        )
        need(
            length is None or 0 < length <= max_length,
            "there is an id for each token of evaluation",
            f"got length {length}, max_length {max_length}",
            "give a length from 1 to max_length",
        )
        self.max_length = max_length
        spread = [place * max_length // (length or 1) for place in range(length or 0)]
        self.fixed = spread if evaluation == "even" else _drawn(seed or 0, max_length, length or 0)

    def place(self, where: Geometry) -> Geometry:
        """Move the tokens: the same id for queries and keys of one position."""
        for pos in (where.q_pos, where.k_pos):
            self.check_positions(pos)
        if not self.training and not self.fixed:
            return where
        ids = self._draw(where) if self.training else self._keep(where)
        return replace(where, q_pos=ids[where.q_pos], k_pos=ids[where.k_pos], ordered=False)

    def _draw(self, where: Geometry) -> Int[Tensor, "ids"]:
        need(
            where.start == 0,
            "random positions are drawn for whole texts while training",
            "got cached tokens, whose ids were drawn before",
            "call eval() before decoding, or train without a cache",
        )
        places = torch.cat([where.q_pos.flatten(), where.k_pos.flatten()])
        longest, device = self.max_length or 0, places.device
        if not places.numel():
            return places
        # numbered at random, ids below a count are a choice of that many: no value need be read
        chosen = torch.randperm(longest, device=device) <= places.max()
        return torch.where(chosen, torch.arange(longest, device=device), longest).sort().values

    def _keep(self, where: Geometry) -> Int[Tensor, "ids"]:
        served = len(self.fixed)
        for pos in (where.q_pos, where.k_pos):
            far = 0 if torch.compiler.is_compiling() or not pos.numel() else int(pos.max())
            need(
                far < served,
                f"Randomized serves positions 0 to {served - 1} in evaluation (length {served})",
                f"got {far}",
                f"build it with length={far + 1} or more",
            )
        return torch.tensor(self.fixed, device=where.q_pos.device)


def _drawn(seed: int, longest: int, length: int) -> list[int]:
    """As many ids in order, the same with every version of Python."""
    source = random.Random(seed)
    keys = [source.random() for _ in range(longest)]
    return sorted(sorted(range(longest), key=keys.__getitem__)[:length])

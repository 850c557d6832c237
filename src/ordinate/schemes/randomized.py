"""Randomized position encodings: random positions from a longer range in training (Ruoss et al., 2023)."""

import random
from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.core.checks import need, need_known, need_positive
from ordinate.core.devices import numbers_beside
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.tensors import need_true
from ordinate.schemes._scheme import Scheme

EvaluationPositions = Literal["unchanged", "evenly_spaced", "random"]


class Randomized(Scheme):
    """Randomized positions: in training, replace positions by a random ordered subset of a longer range.

        p  ->  id[p],    id[0] < id[1] < ...  drawn without replacement from 0 .. max_length - 1 in each forward pass

    The model is trained on all positions of long sequences with short sequences. The scheme does not encode positions
    itself: combine it with one that does, as in `randomized+learned`.

    Enters at: positions.
    Args:
        max_length: ids are drawn from 0 .. max_length - 1; also the maximum number of tokens [tokens].
        evaluation: positions in evaluation mode. `unchanged`: not remapped; `evenly_spaced`: spread `eval_length` ids
            over the whole range, id[p] = floor(p max_length / eval_length); `random`: `eval_length` ids drawn once
            with a fixed seed. In each case the id of a token is independent of the number of tokens read, so a KV
            cache stays valid.
        eval_length: maximum length in evaluation, for `evenly_spaced` and `random` [tokens].
        seed: random seed of `random`; None: 0.
    Raises:
        ValueError: a position at or beyond max_length (in evaluation, eval_length), a fractional one, training with a
            cache, whose tokens would get other ids in each call, or an option without effect.
    Source: Ruoss et al. 2023, Randomized Positional Encodings Boost Length Generalization of Transformers, section 3,
        https://arxiv.org/abs/2305.16843, and its published code.
    Departs: the published code draws new ids in evaluation too. For relative encodings it draws a sorted list of
        distances instead of positions; here a distance is the difference of two drawn positions.
    """

    integer_positions = True
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
        evaluation: EvaluationPositions = "unchanged",
        eval_length: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        need_positive("max_length", max_length)
        need_known("evaluation", evaluation, get_args(EvaluationPositions))
        unchanged = evaluation == "unchanged"
        came = f"got eval_length={eval_length} with evaluation={evaluation!r}"
        need(
            (eval_length is None) == unchanged,
            "eval_length says how far evenly_spaced and random ids reach",
            came,
            "give both, or neither",
        )
        need(
            seed is None or evaluation == "random",
            "seed says what evaluation='random' draws from",
            f"got seed={seed} with evaluation={evaluation!r}, where it has no effect",
            "leave it out",
        )
        need(
            eval_length is None or 0 < eval_length <= max_length,
            "there is an id for each token of evaluation",
            f"got eval_length {eval_length}, max_length {max_length}",
            "give an eval_length from 1 to max_length",
        )
        self.max_length = max_length
        spread = [place * max_length // (eval_length or 1) for place in range(eval_length or 0)]
        self.fixed = spread if evaluation == "evenly_spaced" else _drawn(seed or 0, max_length, eval_length or 0)

    def remap_positions(self, where: Geometry) -> Geometry:
        """Replace positions by ids, the same for queries and keys of equal position."""
        for pos in (where.q_pos, where.k_pos):
            self.check_positions(pos)
        if not self.training and not self.fixed:
            return where
        ids = self._draw(where) if self.training else self._fixed_ids(where)
        return changed(where, q_pos=ids[where.q_pos], k_pos=ids[where.k_pos], consecutive=False)

    def _draw(self, where: Geometry) -> Int[Tensor, "ids"]:
        need(
            where.start == 0,
            "random positions are drawn for whole sequences in training",
            "got cached tokens, whose ids were drawn before",
            "call eval() before decoding, or train without a cache",
        )
        places = torch.cat([where.q_pos.flatten(), where.k_pos.flatten()])
        longest, device = self.max_length or 0, places.device
        if not places.numel():
            return places
        # a random subset of size max + 1 without a device synchronisation: the ids ranked up to max in a permutation
        chosen = torch.randperm(longest, device=device) <= places.max()
        return torch.where(chosen, torch.arange(longest, device=device), longest).sort().values

    def _fixed_ids(self, where: Geometry) -> Int[Tensor, "ids"]:
        served = len(self.fixed)
        for pos in (where.q_pos, where.k_pos):
            if pos.numel():
                far = pos.max()
                need_true(
                    far < served,
                    f"Randomized serves positions 0 to {served - 1} in evaluation (eval_length {served})",
                    lambda far=far: f"got {int(far)}",
                    lambda far=far: f"build it with eval_length={int(far) + 1} or more",
                )
        return numbers_beside(where.q_pos, self.fixed, torch.int64)


def _drawn(seed: int, longest: int, length: int) -> list[int]:
    """Return a sorted random sample of ids, reproducible across versions of Python."""
    source = random.Random(seed)
    keys = [source.random() for _ in range(longest)]
    return sorted(sorted(range(longest), key=keys.__getitem__)[:length])

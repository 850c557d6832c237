"""Low-rank W_q W_k^T: project the queries of each head to fewer directions during the forward pass."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Keys, Queries, Values
from ordinate.ops.low_rank_qk import low_rank_projection
from ordinate.probing._adapter import Hooks, ModelAdapter, NotApplicable
from ordinate.probing.activations.recording import collect
from ordinate.probing.measures.qk_symmetry import QKSymmetry
from ordinate.probing.measures.relative_rotation import TEXT_OFFSETS
from ordinate.probing.measures.samples import Sample

# texts and tokens whose queries and keys are captured
MAX_TEXTS, MAX_TOKENS = 8, 64

# per head: W_q and W_k of a layer, or queries and keys of tokens
QKPair = tuple[Float[Tensor, "h rows d"], Float[Tensor, "g rows d"]]


class LowRankQueries(Hooks):
    """Multiplies queries by a matrix for each layer and head, before rotary embedding.

    Args:
        by: the matrices of each layer.
        turned: layers with rotary embedding.
    """

    def __init__(self, by: list[Float[Tensor, "h d d"]], turned: frozenset[int]) -> None:
        self.by, self.turned = by, turned

    def qk_before_rope(self, layer: int, q: Queries, k: Keys) -> tuple[Queries, Keys] | None:
        return (q @ self.by[layer].to(q), k) if layer in self.turned else None

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values] | None:
        return None if layer in self.turned else (q @ self.by[layer].to(q), k, v)


def qk_weights(weights: QKSymmetry) -> list[QKPair]:
    """W_q and W_k of each layer, with the weight of the preceding norm folded in."""
    return [(own.norm_weight[:, None] * own.query, own.norm_weight[:, None] * own.key) for own in weights.projections]


def qk_of_tokens(subject: ModelAdapter, chosen: Sample, weights: QKSymmetry) -> list[QKPair]:
    """Queries and keys of some texts before RoPE, in place of the matrices.

    The directions kept are then those used on real tokens.

    Raises:
        NotApplicable: queries and keys are not observable.
    """
    few, layers = chosen.truncated(MAX_TEXTS, MAX_TOKENS), range(len(weights.projections))
    given = few.inputs(slice(0, few.count))
    found = collect(subject, [given], [(name, layer) for layer in layers for name in ("q", "k")])

    def rows(name: str, layer: int) -> Tensor:
        return found[name, layer].transpose(0, 1).flatten(1, 2).double().cpu()

    return [(rows("q", layer), rows("k", layer)) for layer in layers]


def low_rank_intervention(
    layers: list[QKPair], weights: QKSymmetry, rank: int, seed: int | None = None
) -> LowRankQueries:
    """The intervention that truncates W_q W_k^T of all heads to a rank.

    Args:
        layers: W_q and W_k, or queries and keys, of each layer.
        weights: holds the relative rotations of each layer.
        rank: number of directions kept.
        seed: seed of random directions (the control); None: the largest singular values.

    Raises:
        NotApplicable: the rotations of queries and keys are unknown.
    """
    if weights.rotations is None:
        raise NotApplicable(
            "one subspace must fit all relative rotations of queries and keys; these could not be measured"
        )
    # a few offsets of a grid suffice: all rotations are linear combinations of at most as many as there are channels
    some = [
        place for place, offset in enumerate(weights.offsets) if {abs(step) for step in offset} <= set(TEXT_OFFSETS)
    ]
    found = []
    for layer, (query, key) in enumerate(layers):
        turn = torch.eye(query.shape[-1], dtype=torch.float64)[None, None]
        turn = weights.rotations[layer][:, some] if layer in weights.rotations else turn
        draw = None if seed is None else torch.Generator().manual_seed(1000 * seed + layer)
        found.append(low_rank_projection(query, key, turn, rank, draw))
    return LowRankQueries(found, frozenset(weights.rotations))

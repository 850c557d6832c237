"""Input obfuscation: permuted or rotated activations and weights, and renamed tokens, with the effect undone."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.shapes import Keys, Queries, Values
from ordinate.probing._adapter import Hooks, Inputs, ModelAdapter, NotApplicable, Projection
from ordinate.probing.activations.recording import collect
from ordinate.probing.measures.samples import Sample, drop_prefix

Norm = Literal["none", "rms", "layer"]
# relative error allowed for recomputed queries: the norm's epsilon is unknown
QUERY_TOLERANCE = 0.02


class PermutedChannels(Hooks):
    """Permutes the channels of queries and keys by the same permutation; base of the two hooks below."""

    def __init__(self, order: Int[Tensor, "d"]) -> None:
        self.order = order


class PermutedBeforeRotation(PermutedChannels):
    """Permutes channels before rotary embedding."""

    met = False

    def qk_before_rope(self, layer: int, q: Queries, k: Keys) -> tuple[Queries, Keys]:
        self.met = True
        if q.shape[-1] != len(self.order):
            raise NotApplicable(
                f"permuting channels before rotation needs all channels of a head; only {q.shape[-1]} of "
                f"{len(self.order)} are visible there"
            )
        return q[..., self.order], k[..., self.order]


class PermutedAfterRotation(PermutedChannels):
    """Permutes channels right before the dot product."""

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        return q[..., self.order], k[..., self.order], v


@dataclass(frozen=True)
class FeatureErrors:
    """Relative error of a layer's queries when its input and weights are transformed by the same orthogonal matrix.

    Args:
        norm: the norm at the input of the layer, identified by recomputing its queries.
        permuted: error under a permutation of the columns.
        rotated: error under a random rotation.
        level: error under a random rotation that fixes the all-ones vector.
    """

    norm: Norm
    permuted: float
    rotated: float
    level: float


def transformed_query_errors(subject: ModelAdapter, inputs: Inputs, layer: int, seed: int) -> FeatureErrors:
    """Compare a layer's queries with those of an orthogonally transformed input and weights.

        q' = norm(x Q) (Q^T gain W),    Q a permutation or a rotation of columns

    Raises:
        NotApplicable: the projections are unknown, or queries are not a known function of the residual stream.
    """
    own, keys = subject.projection(layer), [("resid_pre", layer), ("q", layer)]
    found = collect(subject, [inputs], keys, lambda x: x.double().cpu())
    if len(found) < len(keys):
        raise NotApplicable("its queries are not observable")
    x, q = (found[key] for key in keys)
    if not q.any():
        raise NotApplicable(f"all queries of layer {layer} are 0, so that no change of them can be measured")
    norm = _identify_norm(x, q, own)
    plain = _queries(x, norm, _folded(own))
    width, generator = x.shape[-1], torch.Generator().manual_seed(seed)
    permuted = torch.eye(width, dtype=torch.float64)[torch.randperm(width, generator=generator)]
    turned = random_rotation(width, generator)
    found = [
        _relative_error(_queries(x @ q, norm, q.T @ _folded(own)), plain)
        for q in (permuted, turned, fix_ones_vector(turned))
    ]
    return FeatureErrors(norm, *found)


def random_rotation(width: int, generator: torch.Generator) -> Float[Tensor, "width width"]:
    """Random orthogonal matrix, uniform (Haar): QR of a Gaussian matrix with the signs of R's diagonal fixed."""
    q, r = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64, generator=generator))
    return q * r.diagonal().sign()


def fix_ones_vector(turned: Float[Tensor, "width width"]) -> Float[Tensor, "width width"]:
    """Make a rotation fix the all-ones vector, so that the mean over columns (layer norm) is kept."""
    width = len(turned)
    basis = torch.linalg.qr(torch.cat([torch.ones(width, 1).to(turned), turned[:, 1:]], 1)).Q
    inner = torch.block_diag(torch.ones(1, 1).to(turned), torch.linalg.qr(turned[1:, 1:]).Q)
    return basis @ inner @ basis.T


def permuted_channel_errors(subject: ModelAdapter, chosen: Sample, width: int, seed: int) -> dict[str, float]:
    """Relative output change when channels of queries and keys are permuted alike, after and before rotation."""
    order = torch.randperm(width, generator=torch.Generator().manual_seed(seed))
    given = chosen.inputs(slice(0, chosen.count))
    plain = drop_prefix(subject.info, subject.forward(given).residual).double()
    found = {}
    before = PermutedBeforeRotation(order)
    for name, watch in (("before the dot product", PermutedAfterRotation(order)), ("before rotation", before)):
        stream = drop_prefix(subject.info, subject.forward(given, watch).residual).double()
        if watch is not before or before.met:
            found[name] = float((stream - plain).norm() / plain.norm())
    return found


def frequency_analysis(
    ids: Int[Tensor, "texts n"], public: Int[Tensor, "others m"], vocabulary: int, seed: int
) -> float:
    """Frequency analysis of a substitution cipher on token ids: the fraction of tokens recovered.

    The attacker knows public texts, and matches the most frequent id to the most frequent public token, and so on.
    """
    names = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(seed))
    secret = names[ids]
    seen, known = (torch.bincount(x.flatten(), minlength=vocabulary) for x in (secret, public))
    guess = torch.empty(vocabulary, dtype=torch.long)
    guess[seen.argsort(descending=True, stable=True)] = known.argsort(descending=True, stable=True)
    return float((guess[secret] == ids).double().mean())


def _identify_norm(x: Tensor, q: Tensor, own: Projection) -> Norm:
    matrices = _folded(own)
    if q.shape[-1] != own.query.shape[-1]:
        raise NotApplicable(
            f"only {q.shape[-1]} of {own.query.shape[-1]} channels of a head are visible before rotation"
        )
    # centring over tokens removes a bias, which is the same in each query
    target = q - q.mean(2, keepdim=True)
    norms: tuple[Norm, ...] = ("none", "rms", "layer")
    made = {norm: _queries(x, norm, matrices) for norm in norms}
    errors = {norm: _relative_error(one - one.mean(2, keepdim=True), target) for norm, one in made.items()}
    best = min(norms, key=lambda norm: errors[norm])
    if errors[best] > QUERY_TOLERANCE:
        raise NotApplicable(
            f"its queries are not a linear map of its (normalised) residual stream: relative error {errors[best]:.2g}"
        )
    return best


def _folded(own: Projection) -> Float[Tensor, "h width d"]:
    return own.query.double().cpu() * own.norm_weight.double().cpu()[:, None]


def _queries(x: Tensor, norm: Norm, matrices: Float[Tensor, "h width d"]) -> Queries:
    if norm == "layer":
        x = x - x.mean(-1, keepdim=True)
    if norm != "none":
        x = x / x.square().mean(-1, keepdim=True).sqrt()
    return torch.einsum("bnw,hwd->bhnd", x, matrices)


def _relative_error(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())

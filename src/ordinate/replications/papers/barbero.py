"""Barbero et al. 2025: what rotary frequencies can do, exactly."""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.attention import attend
from ordinate.core.finding import Estimate
from ordinate.core.geometry import Geometry
from ordinate.ops.analytic_heads import offset_head_rope
from ordinate.ops.sinusoids import frequencies
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.schemes import NoPosition, Rope
from ordinate.schemes._scheme import Scheme

HEAD_WIDTH, THETA, QUERIES, HEADS = 128, 10_000.0, 16, 1000
DISTANCES = 1024
# score of the constructed head at its offset, far above the others
STRENGTH = 4.0


class Barbero(Replication):
    """Rotary embeddings need not decay, and one head without positions cannot attend to the previous token.

    For any query q and distance D, the key R_D q has its largest score at distance D: q . R_(D-d) q <= |q|^2. Without
    positions, equal tokens get equal weights: of [bos, x, x] the last attends to both x alike.

    Source: Barbero et al. 2025, https://arxiv.org/abs/2410.06205, sections 3 and 5 (proposition 5.2).
    """

    paper = Paper(
        authors="Barbero et al.", year=2025, title="Round and Round We Go! What makes Rotary Positional Encodings "
        "useful?", arxiv="2410.06205",
    )  # fmt: skip
    order = 4
    claims = (
        Claim(
            name="any offset",
            text="For any query and any distance there is a key whose score is largest at that distance.",
            tested="identity",
            quantity=f"share of {QUERIES} normal queries and distances 0 to {DISTANCES - 1} at which the constructed "
            "key's score is largest",
            side="equal",
            expected=1.0,
            size=0.0,
            null="independent normal keys",
        ),
        Claim(
            name="no positions",
            text="One head without positions cannot attend to the previous token: of [bos, x, x] both x get equal "
            "weights.",
            tested="identity",
            quantity=f"largest difference of the two weights over {HEADS} random heads",
            side="equal",
            expected=0.0,
            size=1e-12,
            null="the largest difference over the same heads with rope",
        ),
        Claim(
            name="rope",
            text="One head with RoPE attends to the previous token.",
            tested="number",
            quantity="least weight on the previous token of a constructed head, over 1024 tokens",
            side="equal",
            expected=1.0,
            size=0.05,
            null="uniform causal attention",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        # its scores repeat after 8 tokens, so that none of them is the largest alone
        keys = torch.tensor([0.0, math.log(2), 0.0], dtype=torch.float64)[None, None, :, None]
        turning = torch.tensor([2 * torch.pi / 8], dtype=torch.float64)
        return (
            Control(name="distances found with one frequency that repeats after 8 tokens", expected=0.0,
                    got=peak_share(turning, seed, 64), tolerance=1e-9),
            Control(name="difference of the weights of keys with the scores 0, ln 2, 0", expected=0.25,
                    got=last_weights(torch.ones_like(keys), keys, NoPosition()), tolerance=1e-12),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        rates = torch.tensor(frequencies(HEAD_WIDTH, THETA, "vaswani", "paper"), dtype=torch.float64)
        q, k = _repeated(subject.seed)
        weight, even = previous_token_weight()
        return {
            "any offset": Estimate(
                name="share", value=peak_share(rates, subject.seed, DISTANCES),
                null=peak_share(rates, subject.seed, DISTANCES, built=False),
            ),
            "no positions": Estimate(
                name="difference", value=last_weights(q, k, NoPosition()),
                null=last_weights(q, k, Rope(head_width=64)),
            ),
            "rope": Estimate(name="weight", value=weight, null=even),
        }  # fmt: skip


def peak_share(rates: Float[Tensor, "pairs"], seed: int, distances: int, *, built: bool = True) -> float:
    """Share of queries and distances at which the score of a key is largest at that distance, and nowhere else.

    Args:
        rates: rotation frequencies.
        seed: of the queries.
        distances: number of distances, from 0.
        built: whether keys are the queries rotated by the distance; False: independent.
    """
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, QUERIES, len(rates), 2, generator=generator, dtype=torch.float64)
    q, other = torch.view_as_complex(a), torch.view_as_complex(b)
    turns = torch.polar(torch.ones((), dtype=torch.float64), torch.arange(distances)[:, None] * rates)
    # a key R_D q at distance d has the score Re sum conj(q) e^(i w (d - D)) q
    products = q.abs().square().to(q.dtype) if built else q.conj() * other
    scores = torch.einsum("qp,sp,dp->qsd", products, turns.conj(), turns).real
    wanted = scores.diagonal(dim1=1, dim2=2)
    reached = (scores >= wanted[..., None] - 1e-9 * wanted.abs()[..., None]).sum(-1)
    return float((reached == 1).double().mean())


def last_weights(q: Tensor, k: Tensor, scheme: Scheme) -> float:
    """Largest difference over heads between the weights of the last of three queries on the last two keys."""
    pattern = _pattern(q, k, scheme)[:, :, -1]
    return float((pattern[..., 1] - pattern[..., 2]).abs().max())


def previous_token_weight() -> tuple[float, float]:
    """Least weight of a constructed head on the previous token, and that of uniform attention."""
    head = offset_head_rope(HEAD_WIDTH, 1, STRENGTH)
    q, k = head.marks(torch.zeros(1, DISTANCES, 1, dtype=torch.float64))
    weights = _pattern(q, k, Rope(head_width=HEAD_WIDTH))[0, 0].diagonal(-1)
    return float(weights.min()), 1 / DISTANCES


def _pattern(q: Tensor, k: Tensor, scheme: Scheme) -> Tensor:
    """Causal attention pattern: the outputs where values are one-hot."""
    tokens = q.shape[2]
    values = torch.eye(tokens, dtype=q.dtype).expand(*q.shape[:2], -1, -1)
    return attend(q, k, values, scheme.at(Geometry.causal(tokens)))


def _repeated(seed: int) -> tuple[Tensor, Tensor]:
    """Queries and keys of random heads for [bos, x, x]."""
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 1, HEADS, 3, 64, generator=generator, dtype=torch.float64)
    q[:, :, 2], k[:, :, 2] = q[:, :, 1], k[:, :, 1]
    return q, k

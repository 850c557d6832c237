"""Song and Zhong 2023: hidden states are a mean, a position, a context and a residual."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Ids
from ordinate.probing._adapter import ModelAdapter
from ordinate.replications.estimates import of_all_texts, over_seeds
from ordinate.replications.random_models import WIDTH, attention_outputs, random_decoder, random_texts
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

TEXTS, TOKENS, SEEDS, RANK = 128, 128, 8, 4
# texts of a model that are read together
BATCH = 16

Streams = Float[Tensor, "texts n width"]


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts of hidden states.

    Args:
        mean: over texts and positions.
        position: mean over texts of each position, less the mean.
        context: mean over positions of each text, less the mean.
        residual: the rest.
    """

    mean: Float[Tensor, "width"]
    position: Float[Tensor, "n width"]
    context: Float[Tensor, "texts width"]
    residual: Streams


class Song(Replication):
    """Decomposition of hidden states h of text c at position t.

        h_ct = mean + position_t + context_c + residual_ct

    The rank of the position part is its stable rank, |P|^2 / largest singular value^2. Unrelated directions in d
    dimensions have the mean |cos| sqrt(2 / (pi d)).

    Source: Song and Zhong 2023, https://arxiv.org/abs/2310.04861, sections 2 to 4.
    Departs: what needs no model is measured on decoders with random weights. The paper estimates ranks by another
        method, and has no null.
    """

    paper = Paper(
        authors="Song and Zhong", year=2023, arxiv="2310.04861",
        title="Uncovering hidden geometry in Transformers via disentangling position and context",
    )  # fmt: skip
    order = 10
    claims = (
        Claim(
            name="parts",
            text="Hidden states are a sum of parts that are orthogonal over texts and positions.",
            tested="identity",
            quantity="relative difference of the sum of the parts' squares from the square of hidden states, random "
            "decoder with a learned table, last layer",
            side="equal",
            expected=0.0,
            size=1e-6,
            null="position and context not centred",
        ),
        Claim(
            name="before training",
            text="Position means have a low rank before any training already; the paper has it of trained models.",
            tested="sign",
            quantity=f"stable rank of position means in the last layer of {SEEDS} decoders with a learned table and "
            "random weights",
            side="below",
            size=2.0,
            null="the same decoders without positions and without the causal mask",
        ),
        Claim(
            name="incoherent",
            text="Position means are nearly orthogonal to context means.",
            tested="number",
            quantity=f"mean |cos| of position and context means at the first layer's input, the same decoders; "
            f"sqrt(2 / (pi d)) is {math.sqrt(2 / (math.pi * WIDTH)):.4f}",
            side="equal",
            expected=math.sqrt(2 / (math.pi * WIDTH)),
            size=0.01,
            null="position means with one another, in the planted model of low rank",
        ),
        Claim(
            name="low rank",
            text="Position means of trained models have a low rank.",
            tested="sign",
            quantity="stable rank of position means at the input of the middle layer, without the first token",
            side="below",
            size=2.0,
            null="the same with the tokens of each text in random order of places",
            printed="2.05 falling to 1.49 over the layers of GPT-2, 9.19 to 2.15 in BERT",
            checked=False,
            needs="model",
        ),
        Claim(
            name="incoherent when trained",
            text="Position means of trained models are nearly orthogonal to context means.",
            tested="sign",
            quantity="mean |cos| of position and context means at the input of the middle layer, without the first "
            "token",
            side="below",
            size=0.1,
            null="position means with one another",
            needs="model",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        parts = decompose(planted(seed))
        noise = torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        captured = parts.position @ planted_basis(seed).T
        return (
            Control(name=f"stable rank of a planted position part of {RANK} equal directions", expected=RANK,
                    got=stable_rank(parts.position), tolerance=0.5),
            Control(name="share of it within the planted directions", expected=1.0,
                    got=float(captured.square().sum() / parts.position.square().sum()), tolerance=0.05),
            # largest singular value sqrt(n) + sqrt(d)
            Control(name="stable rank of white noise of equal shape",
                    expected=TOKENS * WIDTH / (math.sqrt(TOKENS) + math.sqrt(WIDTH)) ** 2,
                    got=stable_rank(noise), tolerance=3.0),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        seeds = range(subject.seed, subject.seed + SEEDS)
        streams = [_streams(seed, "learned", causal=True) for seed in seeds]
        free = [stable_rank(decompose(_streams(seed, "none", causal=False)[-1]).position) for seed in seeds]
        ranks = [stable_rank(decompose(own[-1]).position) for own in streams]
        cosines = [_first_cosine(own[0]) for own in streams]
        coherent = [mean_cosine(part, part) for part in (decompose(planted(seed)).position for seed in seeds)]
        h = streams[0][-1]
        found = {
            "parts": Estimate(name="difference", value=square_error(h, decompose(h)), null=_uncentred_error(h)),
            "before training": over_seeds("stable rank", ranks, free, subject.seed),
            "incoherent": over_seeds("mean |cos|", cosines, coherent, subject.seed),
        }
        if subject.model is None or subject.texts is None or subject.texts.ids is None:
            return found
        return found | _of_model(middle_streams(subject.model, subject.texts.ids), subject.seed)


def decompose(h: Streams) -> Parts:
    """Split hidden states into mean, position, context and residual."""
    mean = h.mean((0, 1))
    position, context = h.mean(0) - mean, h.mean(1) - mean
    return Parts(mean, position, context, h - mean - position - context[:, None])


def square_error(h: Streams, parts: Parts) -> float:
    """Relative difference of the sum of the parts' squares from that of hidden states."""
    made = torch.zeros_like(h) + parts.mean
    squares = [made, made - parts.mean + parts.position, made - parts.mean + parts.context[:, None], parts.residual]
    total = h.square().sum()
    return float((sum(part.square().sum() for part in squares) - total).abs() / total)


def stable_rank(matrix: Float[Tensor, "n width"]) -> float:
    """Squared Frobenius norm over the largest squared singular value."""
    squares = torch.linalg.svdvals(matrix).square()
    return float(squares.sum() / squares[0])


def mean_cosine(one: Float[Tensor, "n width"], other: Float[Tensor, "m width"]) -> float:
    """Mean |cos| over pairs of rows."""
    a, b = (torch.nn.functional.normalize(rows, dim=-1) for rows in (one, other))
    return float((a @ b.T).abs().mean())


def planted_basis(seed: int) -> Float[Tensor, "rank width"]:
    """Orthonormal directions of the planted position part."""
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(WIDTH, RANK, generator=generator, dtype=torch.float64)).Q.T


def planted(seed: int) -> Streams:
    """Hidden states with a position part of known directions, of equal strength, and independent noise."""
    generator = torch.Generator().manual_seed(seed + 1)
    angles = (
        2 * math.pi * torch.arange(TOKENS, dtype=torch.float64)[:, None] / TOKENS * torch.arange(1, RANK // 2 + 1)
    )
    waves = torch.cat([angles.sin(), angles.cos()], 1)
    context = torch.randn(TEXTS, 1, WIDTH, generator=generator, dtype=torch.float64)
    noise = torch.randn(TEXTS, TOKENS, WIDTH, generator=generator, dtype=torch.float64)
    return 1.0 + 5 * waves @ planted_basis(seed) + context + noise


def middle_streams(model: ModelAdapter, ids: Ids) -> Float[Tensor, "texts places width"]:
    """Return hidden states at the input of the middle layer, without the first token, which is often a sink."""
    parts = [attention_outputs(model, rows).streams[model.info.layers // 2][:, 1:] for rows in ids.split(BATCH)]
    return torch.cat(parts)


def permuted_places(h: Streams, seed: int) -> Streams:
    """Return the states of each text in a random order of places, another for each."""
    order = torch.rand(h.shape[:2], generator=torch.Generator().manual_seed(seed)).argsort(1)
    return h.gather(1, order[..., None].expand_as(h))


def _of_model(h: Streams, seed: int) -> dict[str, Estimate]:
    return {
        "low rank": of_all_texts("stable rank", position_rank, h, (position_rank, permuted_places(h, seed))),
        "incoherent when trained": of_all_texts("mean |cos|", _first_cosine, h, (position_cosine, h)),
    }


def position_rank(h: Streams) -> float:
    """Stable rank of the position part."""
    return stable_rank(decompose(h).position)


def position_cosine(h: Streams) -> float:
    """Mean |cos| of the rows of the position part with one another."""
    rows = decompose(h).position
    return mean_cosine(rows, rows)


def _streams(seed: int, scheme: str, *, causal: bool) -> list[Streams]:
    return attention_outputs(random_decoder(seed, scheme), random_texts(seed, TEXTS, TOKENS), causal=causal).streams


def _first_cosine(h: Streams) -> float:
    parts = decompose(h)
    return mean_cosine(parts.position, parts.context)


def _uncentred_error(h: Streams) -> float:
    parts = decompose(h)
    return square_error(h, Parts(parts.mean, parts.position + parts.mean, parts.context + parts.mean, parts.residual))

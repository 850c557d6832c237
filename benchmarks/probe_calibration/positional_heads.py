"""Cells of the probe positional_heads: attention by content alone, a planted offset, and ALiBi, in 8 heads."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.probe_calibration._cell import Cell, Outcome, Reading
from benchmarks.probe_calibration._synthetic import VOCABULARY, token_vectors, zipf_tokens
from ordinate.probing._adapter import ModelInfo, ModelKind
from ordinate.probing.measures.attention_by_offset import AttentionProfile, ProfileHooks
from ordinate.probing.measures.formatting import mean_estimate
from ordinate.probing.measures.head_detection import LEVEL, detect_heads
from ordinate.probing.probes.positional_heads import PositionalHeads
from ordinate.testing.analytic_model import AnalyticModel, random_sequences

TEXTS, LENGTH, WIDTH, LAYERS, HEADS = 16, 48, 32, 2, 4
MASS = 0.5
# mean attention mass of a planted head at its offset, and its standard deviation over texts
PLANTED, SPREAD = 0.8, 0.08

Scores = Float[Tensor, "texts h n n"]


def content(seed: int, strength: float, model: int | None = None) -> list[Scores]:
    """Scores of each layer: products of random projections of tokens, others in each draw without a model."""
    x = token_vectors(zipf_tokens(TEXTS, LENGTH, seed), WIDTH)
    draw = torch.Generator().manual_seed(seed if model is None else model)
    sizes = (LAYERS, 2, HEADS, WIDTH, WIDTH // HEADS)
    projections = torch.randn(sizes, generator=draw, dtype=torch.float64) / WIDTH**0.5
    q, k = torch.einsum("tnw,lphwd->plthnd", x, projections)
    return list(strength * q @ k.mT / math.sqrt(WIDTH // HEADS))


def attended(scores: Scores, *, causal: bool) -> Scores:
    """The attention pattern."""
    hidden = torch.ones(LENGTH, LENGTH).triu(1).bool()
    return (scores.masked_fill(hidden, -torch.inf) if causal else scores).softmax(-1)


def profile(patterns: list[Scores], *, causal: bool = True) -> AttentionProfile:
    """Attention by offset."""
    kind: ModelKind = "decoder" if causal else "encoder"
    facts = ModelInfo("", "", kind, LAYERS, HEADS, HEADS, WIDTH, VOCABULARY, None, "none")
    watch = ProfileHooks(facts, LENGTH)
    for layer, weights in enumerate(patterns):
        watch.attention_pattern(layer, weights)
    return watch.profile()


def blind(causal: bool, strength: float) -> Callable[[int], Outcome]:
    """Attention by content: no kind of head may be found but those that attend to their own token."""

    def draw(seed: int) -> Outcome:
        patterns = [attended(scores, causal=causal) for scores in content(seed, strength)]
        found = detect_heads(profile(patterns, causal=causal), MASS, seed)
        return Outcome(false={
            "a head attends to a fixed offset, at least weakly": bool(found.offset_heads + found.weak_offset_heads),
            "a head attends to the first token": bool(found.first_token_heads),
            "a head decays with distance": bool(found.decaying_heads),
            "the main offset of a head has a corrected p of 0.05 or less": bool((found.offset_p <= LEVEL).any()),
            "a mean distance has a corrected p of 0.05 or less": bool((found.decay_p <= LEVEL).any()),
        })  # fmt: skip

    return draw


def planted(seed: int) -> Outcome:
    """A head of the second layer attends to a random offset, more in some texts than in others."""
    draw = torch.Generator().manual_seed(seed)
    patterns = [attended(scores, causal=True) for scores in content(seed, 1.0)]
    offset = int(torch.randint(1, LENGTH - 10, (1,), generator=draw))
    share = (PLANTED + SPREAD * torch.randn(TEXTS, 1, 1, generator=draw, dtype=torch.float64)).clamp(0, 1)
    there = torch.diag_embed(torch.ones(LENGTH - offset, dtype=torch.float64), offset=-offset)
    own = (1 - share) * patterns[1][:, 2] + share * there
    patterns[1][:, 2] = torch.where((torch.arange(LENGTH) > offset)[:, None], own, patterns[1][:, 2])
    seen = profile(patterns)
    found = detect_heads(seen, MASS, seed)
    values = seen.mass[:, 1, 2, seen.offsets.index(offset)]
    # the rest of its attention is that of content, of which about a share like that of uniform attention is there
    truth = PLANTED + (1 - PLANTED) * float(seen.uniform_mass[1, seen.offsets.index(offset)])
    right = (1, 2) in found.offset_heads and found.offset[1, 2] == offset
    others = [place for place in (*found.heads, *found.weak_offset_heads) if place != (1, 2)]
    return Outcome(
        {"attention mass at the planted offset": Reading.of(mean_estimate("", values, seed, ""), truth)},
        false={"another head is found": bool(others)},
        true={"the head is found at its offset": right},
    )


def alibi(strength: float) -> Callable[[int], Outcome]:
    """ALiBi with the slopes of 8 heads, and scores by content of this strength."""
    i = torch.arange(LENGTH)
    slopes = 2.0 ** -torch.arange(1, LAYERS * HEADS + 1, dtype=torch.float64).view(LAYERS, HEADS, 1, 1)
    bias = -slopes * (i[:, None] - i).abs()

    def draw(seed: int) -> Outcome:
        # the slopes of one model: those of others are others
        scores = content(seed, strength, model=0)
        found = detect_heads(
            profile([attended(one + own, causal=True) for one, own in zip(scores, bias, strict=True)]), MASS, seed
        )
        readings = {
            f"slope of ALiBi, 1/{2 ** (1 + HEADS * layer + head)}": Reading(
                *(float(x[layer, head]) for x in (found.decay.slope, found.decay.low, found.decay.high))
            )
            for layer, head in ((0, 0), (0, 2), (1, 0))
        }
        count = len(found.decaying_heads)
        true = {"all 8 heads decay with distance": count == 8, "6 heads or more decay": count >= 6}
        false = {"a head attends to a fixed offset": bool(found.offset_heads)}
        return Outcome(readings if strength else {}, false=false, true=true)

    return draw


def dead(seed: int) -> Outcome:
    """The whole probe, on a causal model without positions whose attention is even."""
    subject = AnalyticModel("none", seed=seed)
    for own in subject.weights:
        own.query[:] = 0
    finding = PositionalHeads().measure(subject, random_sequences(12, 24, seed=seed), seed)
    return Outcome(false={"the answer is not no": finding.grade != "no"})


SIZE = f"{TEXTS} texts of {LENGTH} Zipf tokens, {LAYERS} x {HEADS} heads"
CELLS = (
    Cell(f"attention by content, causal: {SIZE}", blind(True, 1.0)),
    Cell(f"sharp attention by content, causal: {SIZE}", blind(True, 4.0)),
    Cell(f"attention by content, bidirectional: {SIZE}", blind(False, 1.0)),
    Cell(f"a planted head at a random offset from 1 to {LENGTH - 11}: {SIZE}", planted),
    Cell(f"ALiBi alone: {SIZE}", alibi(0.0)),
    Cell(f"ALiBi and content: {SIZE}", alibi(1.0)),
    Cell("NoPE with dead attention: 12 texts of 24 tokens, 2 x 2 heads", dead),
)

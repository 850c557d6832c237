"""Abnar and Zuidema 2020: attention rollout, beside the attention of the last layer."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import spearmanr
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Ids, Weights
from ordinate.probing._adapter import Hooks, Inputs, ModelAdapter
from ordinate.replications.estimates import over_seeds, over_texts
from ordinate.replications.random_models import LAYERS, random_decoder, random_texts
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

TOKENS, SEEDS, TEXTS = 24, 8, 32

Patterns = Float[Tensor, "layers n n"]


class Abnar(Replication):
    """Attention rollout: the product over layers of attention with the skip connection.

        R = prod over layers of (A_l / 2 + I / 2),    A_l the mean over heads

    Relevance of token j is the change of the last token's output without j's embedding; correlations are Spearman's,
    with mean ranks of ties.

    Source: Abnar and Zuidema 2020, https://arxiv.org/abs/2005.00928, sections 3 and 5.
    Departs: what needs no model is measured on decoders with random weights; attention flow and gradients are not
    measured. The last token itself is not ranked, since half of its rollout is the skip connection's.
    """

    paper = Paper(
        authors="Abnar and Zuidema", year=2020, arxiv="2005.00928",
        title="Quantifying Attention Flow in Transformers",
    )  # fmt: skip
    order = 12
    claims = (
        Claim(
            name="rows",
            text="Rollout is a distribution over the input tokens: rows sum to one.",
            tested="identity",
            quantity="largest difference of a row's sum from 1, in a decoder with random weights",
            side="equal",
            expected=0.0,
            size=1e-5,
            null="attention and skip connection added and not halved",
        ),
        Claim(
            name="relevance",
            text="Rollout is correlated with the relevance of tokens by ablation more than raw attention of the last "
            "layer is.",
            tested="sign",
            quantity=f"correlation of rollout with relevance less that of the last layer's attention, {SEEDS} "
            "decoders with random weights",
            side="above",
            size=0.1,
            null="the same with the relevance of permuted tokens",
        ),
        Claim(
            name="beyond the mask",
            text="What rollout tells of relevance is told by the attention, not by the causal mask alone.",
            tested="sign",
            quantity=f"correlation of rollout with relevance by ablation, {SEEDS} decoders with random weights",
            side="above",
            size=0.05,
            null="rollout of uniform causal attention",
        ),
        Claim(
            name="relevance when trained",
            text="In a trained model rollout is correlated with the relevance of tokens more than raw attention of "
            "the last layer is.",
            tested="sign",
            quantity="correlation of rollout with relevance less that of the last layer's attention, "
            f"{TEXTS} texts of {TOKENS} tokens",
            side="above",
            size=0.1,
            null="the same with the relevance of permuted tokens",
            needs="model",
        ),
        Claim(
            name="beyond the mask when trained",
            text="What rollout tells of relevance in a trained decoder is told by the attention, not by the causal "
            "mask alone.",
            tested="sign",
            quantity=f"correlation of rollout with relevance by ablation, {TEXTS} texts of {TOKENS} tokens",
            side="above",
            size=0.05,
            null="rollout of uniform causal attention",
            needs="model",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        chain = torch.eye(TOKENS, dtype=torch.float64).roll(-1, 1)[None].expand(LAYERS, -1, -1)
        # binomial: of LAYERS steps so many are along the chain
        planted = rollout(chain)[2, 0]
        ranks = torch.tensor([1.0, 1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0, 3.0])
        return (
            Control(name="rollout over two steps of a chain of 4 layers", expected=6 / 16, got=float(planted),
                    tolerance=1e-12),
            # mean ranks 1.5 1.5 3 4 and 1 2 3.5 3.5
            Control(name="correlation of (1, 1, 2, 3) and (1, 2, 3, 3)", expected=4 / 4.5,
                    got=correlation(*ranks), tolerance=1e-12),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        seeds = range(subject.seed, subject.seed + SEEDS)
        seen = attention_patterns(random_decoder(subject.seed), random_texts(subject.seed, 1, TOKENS))
        gaps = np.array([_correlations(random_decoder(seed), random_texts(seed, 1, TOKENS), seed) for seed in seeds])
        whole = 2**LAYERS * rollout(seen)
        found = {
            "rows": Estimate(
                name="difference",
                value=float((rollout(seen).sum(-1) - 1).abs().max()),
                null=float((whole.sum(-1) - 1).abs().max()),
            ),
            "relevance": over_seeds("difference", gaps[:, 0], gaps[:, 1], subject.seed),
            "beyond the mask": over_seeds("correlation", gaps[:, 2], gaps[:, 3], subject.seed),
        }
        model, texts = subject.model, subject.texts
        if model is None or texts is None or texts.ids is None:
            return found
        rows = texts.ids[:TEXTS, :TOKENS].split(1)
        own = torch.tensor([_correlations(model, row, subject.seed + place) for place, row in enumerate(rows)])
        found["relevance when trained"] = over_texts("difference", own[:, 0], own[:, 1], subject.seed)
        if model.info.causal:
            found["beyond the mask when trained"] = over_texts("correlation", own[:, 2], own[:, 3], subject.seed)
        return found


class MeanPatterns(Hooks):
    """Captures the attention pattern of each layer, mean over heads, of one text."""

    def __init__(self) -> None:
        self.layers: list[Tensor] = []

    def attention_pattern(self, layer: int, weights: Weights) -> None:
        self.layers.append(weights[0].double().mean(0))


def attention_patterns(model: ModelAdapter, ids: Tensor) -> Patterns:
    """Attention of each layer, mean over heads, of one text."""
    watch = MeanPatterns()
    model.forward(Inputs(ids=ids), watch)
    return torch.stack(watch.layers)


def rollout(patterns: Patterns) -> Float[Tensor, "n n"]:
    """Product over layers of attention with a skip connection of weight 1/2, later layers from the left."""
    product = torch.eye(patterns.shape[-1], dtype=patterns.dtype)
    for pattern in patterns:
        product = (pattern + torch.eye(len(pattern), dtype=pattern.dtype)) / 2 @ product
    return product


def ablation(model: ModelAdapter, ids: Tensor) -> Float[Tensor, "n"]:
    """Change of the last token's output when each token's embedding is replaced by the mean embedding."""
    table, tokens = model.token_table(), ids.shape[1]
    given = table[ids].repeat(tokens + 1, 1, 1)
    given[torch.arange(tokens), torch.arange(tokens)] = table.mean(0)
    last = model.forward(Inputs(embeddings=given)).residual[:, -1].double()
    return (last[:-1] - last[-1]).norm(dim=-1)


def correlation(one: Tensor, other: Tensor) -> float:
    """Spearman's correlation: ties share their mean rank."""
    return float(spearmanr(one.numpy(), other.numpy()).statistic)


def _correlations(model: ModelAdapter, ids: Ids, seed: int) -> tuple[float, float, float, float]:
    """Correlation of rollout with relevance less that of the last layer; with relevance permuted; alone; uniform."""
    seen, relevance = attention_patterns(model, ids), ablation(model, ids)[:-1]
    permuted = relevance[torch.randperm(len(relevance), generator=torch.Generator().manual_seed(seed))]
    even = torch.ones_like(seen).tril() / torch.arange(1, TOKENS + 1)[:, None]
    mixed, last, uniform = (rows[-1, :-1] for rows in (rollout(seen), seen[-1], rollout(even)))
    first, second = (correlation(mixed, by) - correlation(last, by) for by in (relevance, permuted))
    return first, second, correlation(mixed, relevance), correlation(uniform, relevance)

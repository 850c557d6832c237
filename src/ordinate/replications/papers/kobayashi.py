"""Kobayashi et al. 2021: attention mixes tokens less than its weights suggest."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy import ndarray

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Tokens
from ordinate.ops.heads import repeat_for_heads
from ordinate.ops.stats.bootstrap import mean_interval
from ordinate.probing._adapter import AttentionRecord, Inputs, ModelAdapter, NotApplicable, Projection
from ordinate.probing.measures.residual_stream import MixingRatio, choose_positions
from ordinate.probing.measures.samples import ForwardBudget, Sample, observation_sample
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

TEXTS, TOKENS = 16, 32


class Kobayashi(Replication):
    """Mixing ratio: the share of an attention block's output that comes from other tokens.

        r_i = |m_i| / (|m_i| + |p_i|)
        p_i = x_i + sum over heads of A_ii f(x_i),    m_i = sum over heads and j != i of A_ij f(x_j)

    Source: Kobayashi et al. 2021, https://arxiv.org/abs/2109.07152, sections 3 and 4.
    Departs: before layer normalisation (the paper's AttnRes-N); weights alone are its Attn-W.
    """

    paper = Paper(
        authors="Kobayashi et al.", year=2021, arxiv="2109.07152",
        title="Incorporating Residual and Normalization Layers into Analysis of Masked Language Models",
    )  # fmt: skip
    order = 11
    claims = (
        Claim(
            name="split",
            text="The output of attention with its skip connection is the sum of a part that preserves the token and "
            "a part that mixes others in.",
            tested="identity",
            quantity="largest difference of x + sum A f(x) and the block's own output, relative to its largest "
            "number",
            side="equal",
            expected=0.0,
            size=1e-5,
            null="the same without the part of other tokens",
        ),
        Claim(
            name="weights overstate",
            text="The mixing ratio is far below what attention weights alone suggest.",
            tested="sign",
            quantity="mixing ratio less the share of attention on other tokens, mean over layers",
            side="below",
            size=0.1,
            null="0: the weights are right",
            printed="0.22 against 0.96 in BERT-base, 0.20 against 0.96 in RoBERTa-base",
            needs="model",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        model = random_decoder(seed)
        one, first = random_texts(seed, 2, TOKENS), torch.zeros(1, dtype=torch.long)
        watch = MixingRatio(model, first, [model.projection(layer) for layer in range(model.info.layers)])
        model.forward(Inputs(ids=one), watch)
        alone = max(float(part.max()) for layer in watch.mixed for part in layer)
        # the first token of a causal model attends to itself alone
        return (Control(name="mixing ratio of the first token under a causal mask", expected=0.0, got=alone,
                        tolerance=1e-5),)  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        error, without = split_errors(random_decoder(subject.seed), random_texts(subject.seed, TEXTS, TOKENS))
        found = {"split": Estimate(name="relative difference", value=error, null=without)}
        if subject.model is not None and subject.texts is not None:
            sample = observation_sample(subject.model.info, subject.texts, ForwardBudget(2))
            gap = mixing_less_weights(subject.model, sample)
            if gap is not None:
                mean = mean_interval(gap, subject.seed)
                found["weights overstate"] = Estimate(
                    name="mixing ratio less weights", value=mean.value, low=mean.low, high=mean.high, null=0.0
                )
        return found


class SplitOutputs(MixingRatio):
    """Compares x + sum A f(x), from weights, values and output projections, with the output of the model.

    Args:
        model: the model.
        tokens: length of the inputs.
    """

    def __init__(self, model: ModelAdapter, tokens: int) -> None:
        super().__init__(model, torch.arange(tokens), projections(model))
        self.made, self.errors, self.without = torch.empty(0), list[float](), list[float]()

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        super().attention(layer, seen)
        values = repeat_for_heads(seen.v.transpose(0, 1), seen.pattern.shape[1]).transpose(0, 1)
        self.made = torch.einsum("bhij,bhjd,hdw->biw", seen.pattern, values, self.layers[layer].out.to(values))

    def attention_output(self, layer: int, a: Tokens) -> None:
        whole = self.entered + a
        for part, errors in ((self.made, self.errors), (self.own, self.without)):
            errors.append(float((self.entered + part - whole).abs().max() / whole.abs().max()))


class WeightsOnOthers(MixingRatio):
    """Also records the attention on other tokens, averaged over heads and positions."""

    def __init__(self, model: ModelAdapter, sample: Sample) -> None:
        super().__init__(model, choose_positions(sample, model.info), projections(model))
        self.others: list[list[ndarray]] = [[] for _ in range(model.info.layers)]

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        super().attention(layer, seen)
        own = seen.pattern.diagonal(dim1=-2, dim2=-1)[..., self.places + self.facts.prefix]
        self.others[layer].append(1 - own.double().mean((1, 2)).cpu().numpy())


def projections(model: ModelAdapter) -> list[Projection]:
    """Projections of all layers."""
    return [model.projection(layer) for layer in range(model.info.layers)]


def split_errors(model: ModelAdapter, ids: torch.Tensor) -> tuple[float, float]:
    """Largest relative difference of the split from the output, and the same without the part of other tokens."""
    watch = SplitOutputs(model, ids.shape[1])
    model.forward(Inputs(ids=ids), watch)
    return max(watch.errors), min(watch.without)


def mixing_less_weights(model: ModelAdapter, sample: Sample) -> ndarray | None:
    """Mixing ratio less the attention on other tokens, mean over layers, of each text; None if not observable."""
    try:
        watch = WeightsOnOthers(model, sample)
        for rows in sample.batches(model.info):
            model.forward(sample.inputs(rows), watch)
    except NotApplicable:
        return None
    mixed = np.stack([torch.cat(parts).numpy() for parts in watch.mixed])
    return (mixed - np.stack([np.concatenate(parts) for parts in watch.others])).mean(0)

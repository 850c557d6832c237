"""Chi et al. 2023: without positional embeddings, position is in the variance of attention outputs."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.replications.estimates import of_all_texts, over_seeds
from ordinate.replications.random_models import attention_outputs, random_decoder, random_texts
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

TOKENS, TEXTS, SEEDS, WIDTH = 128, 64, 8, 64
# the first places are few tokens' own vectors, and their variance is not an average yet
FIRST = 4


class Chi(Replication):
    """Variance of causal averages: that of the m-th output is 1 / m of a value's.

        Var(mean of v_1 .. v_m) = Var(v) / m

    Source: Chi et al. 2023, https://arxiv.org/abs/2305.13571.
    """

    paper = Paper(
        authors="Chi et al.", year=2023, arxiv="2305.13571",
        title="Latent Positional Information is in the Self-Attention Variance of Transformer Language Models "
        "Without Positional Embeddings",
    )  # fmt: skip
    order = 18
    claims = (
        Claim(
            name="uniform attention",
            text="With uniform causal attention the variance of the m-th output is proportional to 1 / m.",
            tested="number",
            quantity="slope of log variance over log m, independent normal values",
            side="equal",
            expected=-1.0,
            size=0.1,
            null="bidirectional attention",
        ),
        Claim(
            name="at initialisation",
            text="The variance of attention outputs of a decoder without positions falls with the place, before any "
            "training.",
            tested="sign",
            quantity=f"slope of log variance over log m, first layer of {SEEDS} decoders with random weights",
            side="below",
            size=0.3,
            null="the same decoders without the causal mask",
        ),
        Claim(
            name="last layer",
            text="The same holds in deep layers.",
            tested="sign",
            quantity="the same in the last of 4 layers",
            side="below",
            size=0.3,
            null="the same decoders without the causal mask",
        ),
        Claim(
            name="when trained",
            text="It falls with the place in a trained decoder without positions.",
            tested="sign",
            quantity="slope of log variance over log m, first layer",
            side="below",
            size=0.3,
            null="the same without the causal mask",
            needs="model",
        ),
        Claim(
            name="last layer when trained",
            text="The same holds in the last layer of a trained decoder without positions.",
            tested="sign",
            quantity="slope of log variance over log m, last layer",
            side="below",
            size=0.3,
            null="the same without the causal mask",
            needs="model",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        flat = _values(seed)
        falling = flat / torch.arange(1, TOKENS + 1)[:, None].sqrt()
        return (
            Control(name="slope of values of equal variance", expected=0.0, got=variance_slope(flat), tolerance=0.05),
            Control(name="slope of values of variance 1 / m", expected=-1.0, got=variance_slope(falling),
                    tolerance=0.05),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        drawn = [_values(subject.seed + turn) for turn in range(SEEDS)]
        counts = torch.arange(1, TOKENS + 1)[:, None]
        means = [variance_slope(own.cumsum(1) / counts) for own in drawn]
        # all outputs of bidirectional averaging are one vector
        whole = [variance_slope(own.mean(1, keepdim=True).expand_as(own)) for own in drawn]
        found = {"uniform attention": over_seeds("slope", means, whole, subject.seed)}
        causal, free = np.array([_slopes(subject.seed + turn) for turn in range(SEEDS)]).swapaxes(0, 1)
        for name, layer in (("at initialisation", 0), ("last layer", -1)):
            found[name] = over_seeds("slope", causal[:, layer], free[:, layer], subject.seed)
        model, texts = subject.model, subject.texts
        if model is None or texts is None or texts.ids is None:
            return found
        if not (model.info.causal and model.info.position == "none"):
            return found
        own, whole = (attention_outputs(model, texts.ids, causal=causal).outputs for causal in (True, False))
        for name, layer in (("when trained", 0), ("last layer when trained", -1)):
            found[name] = of_all_texts("slope", variance_slope, own[layer], (variance_slope, whole[layer]))
        return found


def variance_slope(x: Float[Tensor, "texts places width"]) -> float:
    """Slope of the log of the variance over texts and channels at each place, over the log of the place from 1."""
    spread = (x - x.mean(0)).square().mean((0, 2))
    places = torch.arange(1, x.shape[1] + 1)
    return float(np.polyfit(places[FIRST:].log().numpy(), spread[FIRST:].log().numpy(), 1)[0])


def _values(seed: int) -> Float[Tensor, "texts places width"]:
    return torch.randn(TEXTS, TOKENS, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _slopes(seed: int) -> tuple[list[float], list[float]]:
    """Slope of each layer of a random decoder, with and without its causal mask."""
    model, ids = random_decoder(seed), random_texts(seed, TEXTS, TOKENS)
    with_mask, without = (attention_outputs(model, ids, causal=causal).outputs for causal in (True, False))
    return [variance_slope(own) for own in with_mask], [variance_slope(own) for own in without]

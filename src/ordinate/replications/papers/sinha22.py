"""Sinha et al. 2022: absolute positions are not relative: outputs change where all positions are shifted."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Ids
from ordinate.models.decoder import Decoder
from ordinate.probing._adapter import Inputs, ModelAdapter
from ordinate.replications.estimates import over_seeds, over_texts
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

TEXTS, TOKENS, SEEDS, SHIFT = 4, 32, 8, 64
RELATIVE = ("rope", "alibi", "t5")


class Sinha22(Replication):
    """Shifted positions: the outputs of a decoder whose first token is at position k, beside those from 0.

        change = |f(ids, positions + k) - f(ids, positions)| / |f(ids, positions)|

    Scores of a relative scheme depend on differences of positions, so that its change is rounding.

    Source: Sinha et al. 2022, https://arxiv.org/abs/2210.12574.
    Departs: what needs no model is measured on outputs of random weights; the shift is one, by 64.
    """

    paper = Paper(
        authors="Sinha et al.", year=2022, arxiv="2210.12574",
        title="The Curious Case of Absolute Position Embeddings",
    )  # fmt: skip
    order = 13
    claims = (
        Claim(
            name="relative schemes",
            text="Models with relative positions (RoPE, ALiBi, T5) do not depend on where positions start.",
            tested="identity",
            quantity=f"largest relative change of a decoder's outputs when all positions are shifted by {SHIFT}, "
            f"over the three schemes and {SEEDS} seeds",
            side="equal",
            expected=0.0,
            size=1e-5,
            null="the least change of decoders with a learned table",
        ),
        Claim(
            name="learned table",
            text="Models with a learned table of absolute positions depend on where positions start, before any "
            "training.",
            tested="sign",
            quantity=f"relative change of outputs when positions are shifted by {SHIFT}",
            side="above",
            size=0.1,
            null="the same with RoPE",
        ),
        Claim(
            name="sinusoids",
            text="So do models with added sinusoidal embeddings.",
            tested="sign",
            quantity=f"relative change of outputs when positions are shifted by {SHIFT}",
            side="above",
            size=0.1,
            null="the same with RoPE",
        ),
        Claim(
            name="trained table",
            text="A trained model with a learned table depends on where positions start.",
            tested="sign",
            quantity=f"relative change of the last layer's output when the positions of {SHIFT} tokens are shifted "
            f"by {SHIFT}",
            side="above",
            size=0.1,
            null="0: it reads relations of positions alone",
            needs="model",
        ),
        Claim(
            name="loss",
            text="A trained decoder with a learned table predicts shifted texts worse.",
            tested="sign",
            quantity=f"loss added by shifting the positions of {SHIFT} tokens by {SHIFT} [nats]",
            side="above",
            size=0.05,
            null="0: as well",
            needs="model",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        repeated, ids = repeat_table(random_decoder(seed, "learned"), SHIFT), random_texts(seed, TEXTS, TOKENS)
        rows = torch.randn(4, generator=torch.Generator().manual_seed(seed))
        return (
            Control(name=f"shift by {SHIFT} of a learned table that repeats after {SHIFT} rows", expected=0.0,
                    got=shift_change(repeated, ids, SHIFT), tolerance=1e-6),
            Control(name="change without positions", expected=0.0,
                    got=shift_change(random_decoder(seed), ids, SHIFT), tolerance=1e-6),
            Control(name="change of outputs that are 10 % larger", expected=0.1,
                    got=relative_change(rows, 1.1 * rows), tolerance=1e-6),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        found = {
            scheme: [_change(subject.seed + turn, scheme) for turn in range(SEEDS)]
            for scheme in (*RELATIVE, "learned", "sinusoidal")
        }
        estimates = {
            "relative schemes": Estimate(
                name="change", value=max(max(found[scheme]) for scheme in RELATIVE), null=min(found["learned"])
            ),
            "learned table": over_seeds("change", found["learned"], found["rope"], subject.seed),
            "sinusoids": over_seeds("change", found["sinusoidal"], found["rope"], subject.seed),
        }
        model, texts = subject.model, subject.texts
        if model is None or texts is None or texts.ids is None or model.info.position != "learned":
            return estimates
        ids = texts.ids[:, :SHIFT]
        estimates["trained table"] = over_texts("change", shift_changes(model, ids, SHIFT), None, subject.seed)
        if model.info.causal:
            added = shifted_nats(model, ids, SHIFT) - shifted_nats(model, ids, 0)
            estimates["loss"] = over_texts("added loss", added, None, subject.seed, unit="nats")
        return estimates


def shift_change(model: ModelAdapter, ids: Tensor, shift: int) -> float:
    """Relative change of a model's last residual stream when all positions are shifted."""
    places = torch.arange(ids.shape[1]).expand(len(ids), -1)
    plain, moved = (model.forward(Inputs(ids=ids, positions=places + by)).residual for by in (0, shift))
    return relative_change(plain, moved)


def shift_changes(model: ModelAdapter, ids: Ids, shift: int) -> Float[Tensor, "texts"]:
    """Relative change of a model's last residual stream when all positions are shifted, of each text."""
    return torch.tensor([shift_change(model, row[None], shift) for row in ids])


def shifted_nats(model: ModelAdapter, ids: Ids, shift: int) -> Float[Tensor, "texts"]:
    """Loss of each text when all positions are shifted [nats]."""
    places = torch.arange(ids.shape[1] - 1).expand(len(ids), -1) + shift
    logits = model.forward(Inputs(ids=ids[:, :-1], positions=places)).logits
    if logits is None:
        raise ValueError(f"losses need logits; {model.info.name} has none; give a model with a language-model head")
    return nn.functional.cross_entropy(logits.double().mT, ids[:, 1:], reduction="none").mean(1)


def relative_change(plain: Tensor, moved: Tensor) -> float:
    """Norm of the difference over the norm of the first."""
    return float((moved.double() - plain.double()).norm() / plain.double().norm())


def repeat_table(model: ModelAdapter, period: int) -> ModelAdapter:
    """Make a learned table repeat its first rows, in place; return its model."""
    decoder = model.model
    if not isinstance(decoder, Decoder):
        raise TypeError(f"a table is repeated in a Decoder; got {type(decoder).__name__}; pass a random decoder")
    (table,) = decoder.schemes.parameters()
    with torch.no_grad():
        table.copy_(table[torch.arange(len(table)) % period])
    return model


def _change(seed: int, scheme: str) -> float:
    return shift_change(random_decoder(seed, scheme), random_texts(seed, TEXTS, TOKENS), SHIFT)

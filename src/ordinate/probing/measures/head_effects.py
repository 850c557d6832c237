"""The effect of ablating one head on the predictions of a text, beside that of other heads."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.finding import Table
from ordinate.core.shapes import Ids
from ordinate.probing._adapter import Inputs, ModelAdapter, ModelInfo
from ordinate.probing.activations.intervention import ablate
from ordinate.probing.measures.formatting import RELATIVE_UNIT
from ordinate.probing.measures.perturbation_loss import token_losses

# other heads that an effect is compared with
OTHERS = 32


@dataclass(frozen=True, eq=False)
class HeadEffect:
    """What ablating a head changes.

    Args:
        layer: its layer, from 0.
        head: its index, from 0.
        change: at each token: the increase of the loss of the next token [nats], or without a next-token head the
            change of the residual stream after the last layer [of its norm].
        unit: nats or of its norm.
        others: mean change by each of the other heads.
    """

    layer: int
    head: int
    change: Float[Tensor, "n"]
    unit: str
    others: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over tokens."""
        return float(self.change.mean())

    @property
    def rank(self) -> int:
        """How many of the other heads change less, by absolute value."""
        return sum(abs(other) < abs(self.mean) for other in self.others)

    def __str__(self) -> str:
        what = "loss" if self.unit == "nats" else "output"
        among = f"; more than {self.rank} of {len(self.others)} other heads" if self.others else ""
        return f"Without head {self.layer}.{self.head} the {what} changes by {self.mean:.3g} {self.unit}{among}."


def head_effects(
    model: ModelAdapter, ids: Ids, heads: Sequence[tuple[int, int]], *, others: int = OTHERS, seed: int = 0
) -> list[HeadEffect]:
    """Measure what ablating each head (z = 0) changes in one text, and what other heads change, as the null.

    One text has no interval over texts: whether an effect is large is judged by that of other heads.

    Args:
        model: the model.
        ids: one text (1, tokens).
        heads: layer and head of each, from 0.
        others: most other heads to compare with, drawn at random.
        seed: seed of the draw.

    Raises:
        ValueError: a layer or head that the model lacks, or several texts.
        NotApplicable: the attention of the model is not observable.
    """
    need(len(ids) == 1, "effects are measured in one text", f"got {len(ids)}", "give one")
    facts = model.info
    check_heads(facts, heads)
    every = [(layer, head) for layer in range(facts.layers) for head in range(facts.heads)]
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed)).tolist()
    plain, unit = _state(model, ids)
    drawn = [every[place] for place in order][: others + len(heads)]
    changes = {place: _change(model, ids, place, plain) for place in dict.fromkeys([*heads, *drawn])}
    return [
        HeadEffect(*place, changes[place], unit,
                   tuple(float(changes[other].mean()) for other in drawn if other != place)[:others])
        for place in heads
    ]  # fmt: skip


def check_heads(facts: ModelInfo, heads: Sequence[tuple[int, int]]) -> None:
    """Raise unless the model has each layer and head."""
    for layer, head in heads:
        there = 0 <= layer < facts.layers and 0 <= head < facts.heads
        must = f"heads are 0.0 to {facts.layers - 1}.{facts.heads - 1}"
        need(there, must, f"got {layer}.{head}", "give LAYER.HEAD, both from 0")


def effects_table(effects: Sequence[HeadEffect], tokens: Sequence[str]) -> Table:
    """Return a table with a row for each ablated head and token.

    Args:
        effects: the effects.
        tokens: the tokens of the text.
    """
    rows = [
        (f"{one.layer}.{one.head}", place, tokens[place], float(value), one.unit)
        for one in effects
        for place, value in enumerate(one.change)
    ]
    columns = ("ablated head", "token", "text", "change", "unit")
    return Table(title="Change by ablation at each token", columns=columns, rows=tuple(rows))


def _change(model: ModelAdapter, ids: Ids, place: tuple[int, int], plain: Tensor) -> Tensor:
    changed, unit = _state(ablate(model, "z", layers=place[0], heads=place[1]), ids)
    if unit == "nats":
        return changed - plain
    return (changed - plain).norm(dim=-1) / plain.norm(dim=-1)


def _state(model: ModelAdapter, ids: Ids) -> tuple[Tensor, str]:
    """Return the loss of each next token, or the residual stream of a model without a next-token head."""
    out = model.forward(Inputs(ids))
    if out.logits is not None and model.info.causal:
        return token_losses(out.logits[:, :-1], ids[:, 1:])[0].double(), "nats"
    return out.residual[0].double(), RELATIVE_UNIT

"""Sun et al. 2024: massive activations, which act as constants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Ids, Tokens
from ordinate.ops.stats.bootstrap import mean_interval
from ordinate.probing._adapter import Hooks, Inputs, ModelAdapter
from ordinate.replications.estimates import over_seeds
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

# entries of a massive activation are about this many times the median
RATIO = 1000.0
WIDTH, STATES, SEEDS, BATCH = 768, 64, 8, 8

Values = Float[Tensor, "texts"]
Layers = Float[Tensor, "texts layers"]


@dataclass(frozen=True, eq=False)
class Largest:
    """The largest activation of each text, at the layer where it is largest.

    Args:
        layer: layer whose output it is, from 0.
        ratio: its absolute value over the median of the text's.
        place: its token.
        channel: its column.
        value: its value.
    """

    layer: int
    ratio: Values
    place: Int[Tensor, "texts"]
    channel: Int[Tensor, "texts"]
    value: Values

    def part(self, start: int) -> "Largest":
        """Return those of a batch of texts."""
        own = slice(start, start + BATCH)
        return Largest(self.layer, self.ratio[own], self.place[own], self.channel[own], self.value[own])


class Sun(Replication):
    """Massive activations: a few entries of hidden states, at fixed tokens, about 1000 times as large as the median.

        constant:  mean cosine of x / rms(x) over pairs of states that share one massive entry

    One entry is changed for each text, at the input of the layer where it is largest.

    Source: Sun et al. 2024, https://arxiv.org/abs/2402.17762, sections 2 and 3.
    Departs: the entry is found in each text, not listed by channel; the paper changes it where it first appears.
    """

    paper = Paper(
        authors="Sun et al.", year=2024, arxiv="2402.17762", title="Massive Activations in Large Language Models"
    )
    order = 22
    claims = (
        Claim(
            name="constant",
            text="Tokens with the same massive activation enter layers as nearly the same vector, whatever else they "
            "are.",
            tested="sign",
            quantity=f"mean cosine of pairs of normal vectors, {WIDTH} wide, one entry {RATIO:g} times the median",
            side="above",
            size=0.5,
            null="the same vectors without that entry",
        ),
        Claim(
            name="massive",
            text="The largest activation is about a thousand times the median.",
            tested="number",
            quantity="largest activation over the median, mean over texts",
            side="above",
            size=RATIO,
            null="normal numbers of the same shape",
            needs="model",
        ),
        Claim(
            name="first token",
            text="It is at the first token.",
            tested="sign",
            quantity="share of texts whose largest activation is at the first token",
            side="above",
            size=0.3,
            null="1 of the tokens of a text",
            needs="model",
        ),
        Claim(
            name="zero destroys",
            text="Without it the model fails.",
            tested="sign",
            quantity="loss added by setting it to zero [nats]",
            side="above",
            size=1.0,
            null="one entry at a random token and channel of the same layer set to zero",
            needs="model",
        ),
        Claim(
            name="a constant does",
            text="Its mean does as well: it is a constant.",
            tested="number",
            quantity="loss added by replacing it with its mean over texts [nats]",
            side="equal",
            expected=0.0,
            size=0.05,
            null="set to zero",
            needs="model",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        planted = torch.randn(2, 4, 3, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        planted[:, 2, 1, 5] = -300.0
        found = at_one_layer(*by_layer(planted), width=planted.shape[-1])
        model, ids = random_decoder(seed), random_texts(seed, 2, 16)
        plain = losses(model, ids)
        same = losses(model, ids, Replaced(found_in(model, ids), None))
        return (
            Control(name="layer of a planted entry", expected=2.0, got=float(found.layer), tolerance=0.0),
            Control(name="its value", expected=-300.0, got=float(found.value.mean()), tolerance=0.0),
            Control(name="loss added by replacing an entry with itself", expected=0.0,
                    got=float((same - plain).abs().max()), tolerance=1e-6),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        seeds = range(subject.seed, subject.seed + SEEDS)
        with_entry, without = ([mean_cosine(states(seed, ratio)) for seed in seeds] for ratio in (RATIO, None))
        found = {"constant": over_seeds("mean cosine", with_entry, without, subject.seed)}
        model, texts = subject.model, subject.texts
        if model is None or texts is None or texts.ids is None or not model.info.causal or model.info.layers < 2:
            return found
        return found | _of_model(model, texts.ids, subject.seed)


class Streams(Hooks):
    """Captures the residual stream between layers."""

    skip_head = True

    def __init__(self, model: ModelAdapter) -> None:
        self.last, self.layers = model.info.layers, list[Tokens]()

    def residual(self, layer: int, x: Tokens) -> None:
        if 0 < layer < self.last:
            self.layers.append(x.float().cpu())


class Replaced(Hooks):
    """Replaces one entry of the residual stream for each text.

    Args:
        at: the entries.
        value: their new value; None: each its own.
    """

    def __init__(self, at: Largest, value: float | None) -> None:
        self.at, self.value = at, value

    def residual(self, layer: int, x: Tokens) -> Tokens | None:
        if layer != self.at.layer + 1:
            return None
        rows, changed = torch.arange(len(x)), x.clone()
        own = x[rows, self.at.place, self.at.channel]
        changed[rows, self.at.place, self.at.channel] = (
            own if self.value is None else torch.full_like(own, self.value)
        )
        return changed


def found_in(model: ModelAdapter, ids: Ids) -> Largest:
    """Return the largest activation of each text between the layers, at the same layer in all texts."""
    parts = []
    for rows in ids.split(BATCH):
        watch = Streams(model)
        model.forward(Inputs(ids=rows), watch)
        parts.append(by_layer(torch.stack(watch.layers, 1)))
    return at_one_layer(*(torch.cat(part) for part in zip(*parts, strict=True)), width=model.info.width)


def by_layer(x: Float[Tensor, "texts layers n width"]) -> tuple[Layers, Layers, Int[Tensor, "texts layers"]]:
    """Return, by text and layer, the largest entry over the median, its value, and its index in the layer."""
    sizes = x.abs().flatten(2)
    index = sizes.argmax(-1)
    value = x.flatten(2).gather(2, index[..., None])[..., 0].double()
    return value.abs() / sizes.median(-1).values, value, index


def at_one_layer(ratio: Layers, value: Layers, index: Int[Tensor, "texts layers"], width: int) -> Largest:
    """Return the largest activation of each text at the layer where the mean ratio is largest."""
    layer = int(ratio.mean(0).argmax())
    at = index[:, layer]
    return Largest(layer, ratio[:, layer], at // width, at % width, value[:, layer])


def elsewhere(at: Largest, tokens: int, width: int, draw: torch.Generator) -> Largest:
    """Return as many entries of the same layer, at random tokens and channels."""
    place, channel = (torch.randint(size, (len(at.place),), generator=draw) for size in (tokens, width))
    return replace(at, place=place, channel=channel)


def losses(model: ModelAdapter, ids: Ids, watch: Hooks | None = None) -> Values:
    """Return the loss of each text [nats]."""
    logits = model.forward(Inputs(ids=ids), watch).logits
    if logits is None:
        raise ValueError(f"losses need logits; {model.info.name} has none; give a model with a language-model head")
    nats = nn.functional.cross_entropy(logits[:, :-1].double().mT, ids[:, 1:], reduction="none")
    return nats.mean(1)


def states(seed: int, ratio: float | None) -> Float[Tensor, "states width"]:
    """Normal vectors of which one entry is this many times the median; None: unchanged."""
    x = torch.randn(STATES, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if ratio is not None:
        x[:, 0] = ratio * x.abs().median()
    return x


def mean_cosine(x: Float[Tensor, "states width"]) -> float:
    """Mean cosine of pairs of vectors, which is that of the vectors divided by their root mean square."""
    unit = nn.functional.normalize(x, dim=-1)
    count = len(x)
    return float(((unit @ unit.T).sum() - count) / (count * (count - 1)))


def _of_model(model: ModelAdapter, ids: Ids, seed: int) -> dict[str, Estimate]:
    found, draw = found_in(model, ids), torch.Generator().manual_seed(seed)
    mean = float(found.value.mean())
    added: dict[str, list[Values]] = {"zero": [], "mean": [], "random": []}
    for start in range(0, len(ids), BATCH):
        rows, one = ids[start : start + BATCH], found.part(start)
        plain, other = losses(model, rows), elsewhere(one, rows.shape[1], model.info.width, draw)
        for name, at, value in (("zero", one, 0.0), ("mean", one, mean), ("random", other, 0.0)):
            added[name].append(losses(model, rows, Replaced(at, value)) - plain)
    nats = {name: torch.cat(parts) for name, parts in added.items()}
    normal = torch.randn(ids.shape[1] * model.info.width, generator=draw).abs()
    first, ratio = (found.place == 0).double(), found.ratio
    return {
        "massive": _mean("ratio", ratio, torch.full_like(ratio, float(normal.max() / normal.median())), seed),
        "first token": _mean("share", first, torch.full_like(first, 1 / ids.shape[1]), seed),
        "zero destroys": _mean("added loss", nats["zero"], nats["random"], seed, "nats"),
        "a constant does": _mean("added loss", nats["mean"], nats["zero"], seed, "nats"),
    }


def _mean(name: str, values: Values, null: Values, seed: int, unit: str = "") -> Estimate:
    own, other = (mean_interval(one.numpy(), seed) for one in (values, null))
    return Estimate(
        name=name, value=own.value, low=own.low, high=own.high, null=other.value, null_low=other.low,
        null_high=other.high, unit=unit,
    )  # fmt: skip

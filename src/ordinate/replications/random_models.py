"""Decoders and encoders with random weights, on which replications measure what is there before any training."""

import torch

from ordinate.core.shapes import Ids, Tokens
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.probing._adapter import Hooks, Inputs, ModelAdapter
from ordinate.probing._attach import attach

VOCABULARY, WIDTH, LAYERS, HEADS = 256, 64, 4, 4


def random_decoder(seed: int, scheme: str = "none") -> ModelAdapter:
    """Return a small decoder as it is initialised.

    Args:
        seed: of its weights.
        scheme: its positional scheme.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shape = Shape(vocabulary=VOCABULARY, width=WIDTH, layers=LAYERS, heads=HEADS, scheme=scheme)
        return attach(Decoder(shape).eval(), name=f"random decoder, {scheme}")


def random_texts(seed: int, texts: int, tokens: int) -> Ids:
    """Return rows of independent, uniform token ids."""
    return torch.randint(VOCABULARY, (texts, tokens), generator=torch.Generator().manual_seed(seed))


class AttentionOutputs(Hooks):
    """Captures the attention output of each layer and the residual stream after it."""

    skip_head = True

    def __init__(self) -> None:
        self.outputs: list[Tokens] = []
        self.streams: list[Tokens] = []

    def residual(self, layer: int, x: Tokens) -> None:
        self.streams.append(x.double())

    def attention_output(self, layer: int, a: Tokens) -> None:
        self.outputs.append(a.double())


def attention_outputs(model: ModelAdapter, ids: Ids, *, causal: bool = True) -> AttentionOutputs:
    """Run a forward pass and return what it captured.

    Args:
        model: the model.
        ids: token ids.
        causal: whether its causal mask stays; False: all tokens attend to all.
    """
    tokens, seen = ids.shape[1], AttentionOutputs()
    mask = None if causal else torch.ones(1, tokens, tokens, dtype=torch.bool)
    model.forward(Inputs(ids=ids, mask=mask), seen)
    return seen

"""Attention of the decoder of an encoder-decoder on one target: to itself, and to the source."""

from dataclasses import dataclass

from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.shapes import Ids, SourceIds
from ordinate.probing._adapter import ModelAdapter
from ordinate.probing._attach import attach
from ordinate.probing.activations.inputs import model_inputs
from ordinate.probing.activations.recording import record


@dataclass(frozen=True, eq=False)
class TargetAttention:
    """Attention of the decoder on one target.

    Args:
        decoder: patterns of its self-attention.
        cross: patterns of its cross-attention, target tokens by source tokens.
    """

    decoder: Float[ndarray, "layers h i i"]
    cross: Float[ndarray, "layers h i j"]


def target_parts(model: ModelAdapter, source: SourceIds, target: Tensor) -> tuple[ModelAdapter, ModelAdapter]:
    """Return the decoder and the cross-attention, for this source.

    Args:
        model: the encoder of an encoder-decoder.
        source: tokens of the source, of one text.
        target: tokens of the target, beginning with the start token.

    Raises:
        ValueError: a target that is not (1, tokens), longer than the decoder reads, or beyond its vocabulary.
        NotApplicable: the attention of its decoder is not observable.
    """
    name = model.info.name
    shaped = target.ndim == 2 and len(target) == 1
    need(shaped, "a target is (1, tokens)", f"got {tuple(target.shape)}", "reshape it")
    decoder, cross = attach(model, part="decoder", source=source), attach(model, part="cross", source=source)
    count, longest = target.shape[1], decoder.info.max_length
    must = f"the decoder of {name} reads {longest} tokens"
    need(longest is None or count <= longest, must, f"got a target of {count}", "shorten it")
    model_inputs(decoder, target)
    return decoder, cross


def target_attention(parts: tuple[ModelAdapter, ModelAdapter], target: Ids) -> TargetAttention:
    """Return the attention of the decoder on a target.

    Args:
        parts: the decoder and the cross-attention.
        target: tokens of the target.
    """
    return TargetAttention(*(_numbers(record(part, target, "pattern").layers("pattern")) for part in parts))


def _numbers(patterns: Tensor) -> ndarray:
    return patterns[0].double().cpu().numpy()

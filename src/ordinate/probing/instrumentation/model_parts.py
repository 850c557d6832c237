"""Parts of an encoder-decoder: its decoder or its cross-attention, with the source that they read."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ordinate.core.checks import need
from ordinate.core.shapes import SourceIds
from ordinate.data.tokenizer import Tokenizer
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.probing._adapter import Inputs, ModelKind, NotApplicable
from ordinate.probing.instrumentation.inspect_model import has_both_sides

PartName = Literal["encoder", "decoder", "cross"]
PARTS: tuple[PartName, ...] = ("encoder", "decoder", "cross")
"""The parts of an encoder-decoder; cross is its cross-attention."""
KIND_OF_PART: dict[PartName, ModelKind] = {
    "encoder": "encoder-decoder",
    "decoder": "decoder",
    "cross": "cross-attention",
}
LEFT_OUT: dict[PartName, str] = {
    "decoder": "the self-attention of the decoder is probed, not its encoder and not its cross-attention",
    "cross": "the cross-attention of the decoder is probed, not its self-attention and not its encoder",
}
# tokens of the source in short passes: another number than those of the target tells cross-attention by its sizes
SOURCE_LENGTH = 5


@dataclass(frozen=True, eq=False)
class ModelPart:
    """The decoder of an encoder-decoder, or its cross-attention.

    Args:
        model: the whole model.
        name: decoder or cross.
        source: the source where inputs name none; None: inputs must name one.
    """

    model: nn.Module
    name: PartName
    source: SourceIds | None = None


@dataclass(frozen=True, eq=False)
class EncodedInputs(Inputs):
    """Inputs of a decoder whose source is encoded.

    Args:
        memory: the encoded source, as the model has it.
    """

    memory: Any = None


def with_memory(inputs: Inputs, source: SourceIds, memory: Any) -> EncodedInputs:
    """Return inputs with their encoded source."""
    return EncodedInputs(**(vars(inputs) | {"source": source, "memory": memory}))


def source_of(inputs: Inputs, usual: Tensor | None, name: str, vocabulary: int) -> SourceIds:
    """Return the source of each text of a batch.

    Args:
        inputs: the batch.
        usual: the source where it names none; one row serves all.
        name: name of the model.
        vocabulary: size of the vocabulary of the source.

    Raises:
        ValueError: no source, another number of sources than targets, or ids beyond the vocabulary.
    """
    source = usual if inputs.source is None else inputs.source
    if source is None:
        raise ValueError(
            f"the decoder of {name} reads a source; got none; "
            "give Inputs(ids, source=...), or a source for all: attach(model, part=..., source=...)"
        )
    check_source(source, name, vocabulary)
    targets = inputs.ids if inputs.ids is not None else inputs.embeddings
    rows = len(source) if targets is None else len(targets)
    must = "each target needs a source, or all of them one"
    need(len(source) in (1, rows), must, f"got {rows} targets and {len(source)} sources", "give as many")
    return source.long().expand(rows, -1)


def check_source(source: Tensor, name: str, vocabulary: int) -> None:
    """Raise unless a source is token ids (batch, tokens) of the vocabulary."""
    shaped = source.ndim == 2 and source.numel() > 0 and not source.is_floating_point()
    came = f"got {source.dtype} of shape {tuple(source.shape)}"
    need(shaped, "a source is token ids (batch, tokens)", came, "give one text or more")
    need(
        bool(((source >= 0) & (source < vocabulary)).all()),
        f"token ids of the source of {name} are 0 to {vocabulary - 1}",
        lambda: f"got {int(source.min())} to {int(source.max())}",
        "use the tokenizer of the model",
    )


def check_part(model: Any, name: str, part: PartName | None) -> bool:
    """Return whether a part reads a source: the decoder or the cross-attention of an encoder-decoder.

    Raises:
        NotApplicable: the model has no cross-attention.
    """
    both = isinstance(model, EncoderDecoder) or has_both_sides(model)
    if part == "cross" and not both:
        raise NotApplicable(f"{name} has no cross-attention: only encoder-decoders have; leave part out")
    return both and part in ("decoder", "cross")


def lacking_part(name: str, part: str, kind: ModelKind) -> NotApplicable:
    """Return the error for a part that a model of another kind lacks."""
    there = "no parts: it takes images" if kind == "vision" else f"its {kind} only"
    return NotApplicable(f"{name} has no {part}; it has {there}; leave part out")


def source_text(tokenizer: Tokenizer | None, text: str, name: str) -> SourceIds:
    """Return the token ids (1, tokens) of a source, with the special tokens that an encoder reads texts with.

    Raises:
        NotApplicable: the model has no tokenizer.
        ValueError: an empty text.
    """
    if tokenizer is None:
        raise NotApplicable(f"{name} has no tokenizer; give the source as token ids (batch, tokens)")
    ids = torch.from_numpy(tokenizer.encode_plain(text).astype("int64"))
    need(len(ids) > 0, "a source has a token or more", f"got {text!r}", "give a sentence")
    first, last = (
        torch.tensor([token for token in (one,) if token is not None], dtype=torch.long)
        for one in (tokenizer.prefix_token, tokenizer.suffix_token)
    )
    return torch.cat([first, ids, last])[None]

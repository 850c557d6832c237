"""Output heads of models of texts: which there are, and what they read of a text."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import need_true

DecoderHead = Literal["next_token", "classes", "token_classes", "spans", "none"]
EncoderHead = Literal["masked", "pooler", "classes", "token_classes", "spans", "none"]
TextHead = DecoderHead | EncoderHead
DECODER_HEADS: tuple[DecoderHead, ...] = get_args(DecoderHead)
ENCODER_HEADS: tuple[EncoderHead, ...] = get_args(EncoderHead)
CLASSIFIERS: tuple[TextHead, ...] = ("classes", "token_classes")
"""Heads with a name for each class."""
READERS: tuple[TextHead, ...] = (*CLASSIFIERS, "spans")
"""Heads with logits of a few classes in place of a vocabulary."""
LOGIT_HEADS: tuple[TextHead, ...] = ("next_token", *READERS)
"""Heads of a decoder with logits."""
# the first and the last token of an answer
SPAN_ENDS = 2
Pool = Literal["first", "mean", "late"]
POOLS: tuple[Pool, ...] = get_args(Pool)


def class_count(head: TextHead, labels: Sequence[str]) -> int:
    """Return the number of columns of a head of `READERS`, whose class names are given; 0 for other heads."""
    return SPAN_ENDS if head == "spans" else len(labels) if head in CLASSIFIERS else 0


def check_labels(head: TextHead, labels: Sequence[str]) -> None:
    """Raise unless a classifier has class names, and another head has none."""
    need(
        (head in CLASSIFIERS) == bool(labels),
        "labels names the classes of a classifier",
        f"got {len(labels)} labels with head={head!r}",
        "give one for each class to a classifier, and to others none",
    )


def check_transform_head(transformed: bool, head: TextHead, heads: Sequence[TextHead]) -> None:
    """Raise unless a head that reads transformed hidden states is one of these heads, which can."""
    need(
        not transformed or head in heads,
        f"head_transform is an option of the heads {', '.join(heads)}",
        f"got head={head!r}",
        "leave it out",
    )


def check_transform_options(transformed: bool, activation: str, biased: bool) -> None:
    """Raise if a model without a transform before its head has options of one."""
    need(
        transformed or (activation == "gelu" and biased),
        "head_activation and head_bias have an effect only with head_transform",
        f"got head_activation={activation!r}, head_bias={biased} with head_transform=False",
        "leave them out, or give head_transform=True",
    )


def check_plain_head(kind: str, transformed: bool, activation: str, biased: bool) -> None:
    """Raise if a model of a kind whose head reads hidden states themselves has a transform before it."""
    must, came = f"the head of {kind} reads hidden states themselves", f"got head_transform={transformed}"
    need(not transformed, must, came, "leave it out")
    check_transform_options(transformed, activation, biased)


def check_tied_head(head: TextHead, tied: bool, bias: Sequence[str]) -> None:
    """Raise unless a decoder with this head can be tied, and can have these biases."""
    need(
        head == "next_token" or not (tied or (head == "none" and "head" in bias)),
        f"head={head!r} needs tie_embeddings=False{' and no bias of the head' * (head == 'none')}",
        f"got tie_embeddings={tied}, bias={bias}",
        "give tie_embeddings=False" if tied else "leave bias='head' out",
    )


def check_padding(head: TextHead, padding: int | None, vocabulary: int) -> None:
    """Raise unless a decoder with this head can have this padding token."""
    need(
        padding is None or (head == "classes" and 0 <= padding < vocabulary),
        f"padding is a token from 0 to {vocabulary - 1} that a decoder with head='classes' leaves out",
        f"got padding={padding} with head={head!r}",
        "leave it out, or give the one of the tokenizer",
    )


def need_head(what: str, head: TextHead, *wanted: TextHead) -> None:
    """Raise unless a model has one of the wanted heads."""
    must = f"{what} need a model with {' or '.join(f'head={name!r}' for name in wanted)}"
    need(head in wanted, must, f"this one has head={head!r}", "load or build one that has it")


def token_mask(where: Geometry | None) -> Bool[Tensor, "#b n"] | None:
    """Padding mask: True at real tokens; None: no padding."""
    return None if where is None or where.q_document is None else where.q_document != PADDING


def text_mask(where: Geometry | None) -> Bool[Tensor, "#b n"] | None:
    """Padding mask of rows that hold one text each, as `token_mask`.

    Raises:
        ValueError: several texts are packed into a row.
    """
    if where is None or where.q_document is None:
        return None
    texts = where.q_document
    if not where.one_document:
        last = texts.amax(-1, keepdim=True)
        need_true(
            ((texts == last) | (texts == PADDING)).all(),
            "a head that reads whole texts needs one text in each row",
            "got a geometry with several",
            "give each text a row of its own: Geometry.padded",
        )
    return token_mask(where)


def mean_pool(x: Tokens, real: Bool[Tensor, "#b n"] | None = None) -> Float[Tensor, "b width"]:
    """Mean pooling over the real tokens of each sequence: a sentence embedding.

    Source: Reimers and Gurevych 2019, Sentence-BERT, section 3, https://arxiv.org/abs/1908.10084.
    """
    there = x.new_ones(x.shape[:2]) if real is None else real.to(x.dtype).expand(x.shape[:2])
    return (x * there[..., None]).sum(1) / there.sum(1, keepdim=True).clamp(min=1)


def last_token(x: Tokens, real: Bool[Tensor, "#b n"] | None = None) -> Float[Tensor, "b width"]:
    """Vector of the last real token of each sequence; of a sequence without any, that of its first position.

    Source: the sequence classifiers of transformers, https://huggingface.co/docs/transformers/model_doc/llama.
    """
    if real is None:
        return x[:, -1]
    places = torch.arange(x.shape[1], device=x.device)
    last = (places * real).amax(-1).expand(x.shape[0])
    return x[torch.arange(x.shape[0], device=x.device), last]


def span_logits(ends: Float[Tensor, "b n two"], real: Bool[Tensor, "#b n"] | None = None) -> Float[Tensor, "b two n"]:
    """Logits of the first and of the last token of an answer, each over the tokens; minus infinity at padding."""
    logits = ends.mT
    return logits if real is None else logits.masked_fill(~real[:, None], float("-inf"))

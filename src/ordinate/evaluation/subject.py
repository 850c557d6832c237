"""A trained model as an evaluation sees it: how to run it, its tokenizer, and the lengths it was made for."""

from dataclasses import dataclass

from torch import nn

from ordinate.data.task import ModelKind
from ordinate.data.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Subject:
    """A trained model of text.

    Args:
        name: name in the report.
        kind: decoder (evaluated on the next token) or encoder (on masked tokens).
        model: takes token ids and returns the logits of each position.
        tokenizer: its tokenizer.
        first_token: id of the token at the start of each text (BOS, [CLS]); None: none.
        last_token: id of the token at the end of each text of an encoder ([SEP]); None: none.
        mask_token: id of the mask token of an encoder; None: none.
        max_length: most tokens that it can read; None: any number.
        trained_length: length of its training sequences [tokens]; None: not known.
        trained_length_source: where that is written.
        precision: `bf16` for bfloat16 matrix products, as in its training, or `fp32`: the type of its weights.
    """

    name: str
    kind: ModelKind
    model: nn.Module
    tokenizer: Tokenizer
    first_token: int | None = None
    last_token: int | None = None
    mask_token: int | None = None
    max_length: int | None = None
    trained_length: int | None = None
    trained_length_source: str = ""
    precision: str = "fp32"

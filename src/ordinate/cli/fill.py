"""`ordinate fill`: say the hidden words of a text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ordinate.checks import need, need_positive
from ordinate.cli.trained import trained_reader

if TYPE_CHECKING:
    from ordinate.models.encoder import Encoder
    from ordinate.tokenizer import Tokenizer

app = App(name="fill", help="Say the hidden words of a text, by a trained encoder.")
MASK = "[MASK]"
# what published tokenizers call it
KNOWN = (MASK, "<mask>")


@app.default
def fill(model: Path, text: str, *, top: Annotated[int, Parameter(alias="-n")] = 5) -> int:
    """Say the hidden words of a text: the likeliest tokens for each [MASK], with their probabilities.

    Parameters
    ----------
    model
        Folder of an encoder, as `ordinate train --model encoder` prints it, or of a published one with a masked head
        (BERT, RoBERTa, ModernBERT, DeBERTa: config.json, safetensors, tokenizer.json).
    text
        The text, with [MASK] for each hidden token.
    top
        How many tokens for each.
    """
    import torch

    need_positive("top", top)
    need(MASK in text, f"fill says what stands at {MASK}", f"got {text!r}", f"write {MASK} for each hidden token")
    tokenizer, found = trained_reader(model, "encoder")
    reader = cast("Encoder", found)
    need(reader.masked is not None, "an encoder that fills has a masked head", f"{model} has none", "give one")
    ids, mask = hidden_ids(tokenizer, reader, text)
    with torch.no_grad():
        logits = reader.predict(reader(torch.tensor([ids]))).float()[0]
    # the mask is no answer
    likely = logits.index_fill(1, torch.tensor([mask]), float("-inf")).softmax(-1)
    table, whole = Table("mask", "token", "probability"), list(ids)
    for number, place in enumerate((place for place, token in enumerate(ids) if token == mask), 1):
        found = likely[place].topk(min(top, likely.shape[1] - 1))
        whole[place] = int(found.indices[0])
        for rank, (share, token) in enumerate(zip(found.values.tolist(), found.indices.tolist(), strict=True)):
            table.add_row("" if rank else str(number), Text(tokenizer.decode([token])), f"{share:.1%}")
    console = Console(highlight=False)
    console.print(table)
    console.print(Text(tokenizer.decode(whole)), soft_wrap=True)
    return 0


def hidden_ids(tokenizer: "Tokenizer", reader: "Encoder", text: str) -> tuple[Sequence[int], int]:
    """The tokens of a text with masks, and the token of the mask.

    Our own encoders know one token more than their tokenizer, the mask; a published tokenizer has it among its own.

    Raises:
        ValueError: a tokenizer that has none, or of another model.
    """
    from ordinate.tokenizers.published import Published

    known = reader.shape.vocabulary
    if isinstance(tokenizer, Published):
        found = [(name, token) for name in KNOWN if (token := tokenizer.inner.token_to_id(name)) is not None]
        need(bool(found), "the tokenizer has a mask", f"it has no {' or '.join(KNOWN)}", "give another model")
        name, mask = found[0]
        ids = [int(token) for token in tokenizer.encode(text.replace(MASK, name))]
    else:
        first, *parts = ([int(token) for token in tokenizer.bare(part)] for part in text.split(MASK))
        mask = tokenizer.size
        ids = first + [token for part in parts for token in (mask, *part)]
    need(
        max(ids) < known,
        "the model knows every token of its tokenizer",
        f"got token {max(ids)} for a model of {known}",
        "put the tokenizer.json beside it that it was trained with",
    )
    return ids, mask

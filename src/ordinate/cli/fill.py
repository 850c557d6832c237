"""`ordinate fill`: predict the masked tokens of a text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from ordinate.cli.console import SafeConsole
from ordinate.cli.load_trained import load_trained_text_model
from ordinate.core.checks import need, need_positive

if TYPE_CHECKING:
    from ordinate.data.tokenizer import Tokenizer
    from ordinate.models.encoder import Encoder

app = App(name="fill", help="Predict masked tokens of a text with a trained encoder.")
MASK = "[MASK]"
# spellings of the mask token in published tokenizers
MASK_SPELLINGS = (MASK, "<mask>")


@app.default
def fill(model: Path, text: str, *, top: Annotated[int, Parameter(alias="-n")] = 5) -> int:
    """Predict masked tokens of a text: the most probable tokens for each [MASK], with their probabilities.

    Parameters
    ----------
    model
        Folder of an encoder, as `ordinate train --model encoder` prints it, or of a published one with a masked-token
        head (BERT, RoBERTa, ModernBERT, DeBERTa: config.json, safetensors, tokenizer.json).
    text
        The text, with [MASK] for each token to predict.
    top
        Number of tokens shown for each.
    """
    import torch

    need_positive("top", top)
    need(MASK in text, f"the text must contain {MASK}", f"got {text!r}", f"write {MASK} for each token to predict")
    tokenizer, found = load_trained_text_model(model, "encoder")
    reader = cast("Encoder", found)
    need(reader.masked is not None, "fill needs an encoder with a masked-token head", f"{model} has none", "give one")
    ids, mask = masked_ids(tokenizer, reader, text)
    with torch.no_grad():
        logits = reader.logits(reader(torch.tensor([ids]))).float()[0]
    # the mask token itself is not a valid prediction
    likely = logits.index_fill(1, torch.tensor([mask]), float("-inf")).softmax(-1)
    table, whole = Table("mask", "token", "probability"), list(ids)
    for number, place in enumerate((place for place, token in enumerate(ids) if token == mask), 1):
        found = likely[place].topk(min(top, likely.shape[1] - 1))
        whole[place] = int(found.indices[0])
        for rank, (share, token) in enumerate(zip(found.values.tolist(), found.indices.tolist(), strict=True)):
            table.add_row("" if rank else str(number), Text(tokenizer.decode([token])), f"{share:.1%}")
    console = SafeConsole()
    console.print(table)
    console.print(Text(tokenizer.decode(whole)), soft_wrap=True)
    return 0


def masked_ids(tokenizer: "Tokenizer", reader: "Encoder", text: str) -> tuple[Sequence[int], int]:
    """Return the token ids of a text with masks, and the id of the mask token.

    Ordinate's own encoders have one token more than their tokenizer, the mask; published tokenizers include it.

    Raises:
        ValueError: the tokenizer has no mask token, or belongs to another model.
    """
    from ordinate.data.tokenizers.published import Published

    known = reader.shape.vocabulary
    if isinstance(tokenizer, Published):
        found = [(name, token) for name in MASK_SPELLINGS if (token := tokenizer.inner.token_to_id(name)) is not None]
        need(
            bool(found),
            "the tokenizer must have a mask token",
            f"it has no {' or '.join(MASK_SPELLINGS)}",
            "give another model",
        )
        name, mask = found[0]
        ids = [int(token) for token in tokenizer.encode(text.replace(MASK, name))]
    else:
        first, *parts = ([int(token) for token in tokenizer.encode_plain(part)] for part in text.split(MASK))
        mask = tokenizer.size
        ids = first + [token for part in parts for token in (mask, *part)]
    need(
        max(ids) < known,
        "every token of the text must be in the model's vocabulary",
        f"got token {max(ids)} for a vocabulary of {known}",
        "use the tokenizer.json that the model was trained with",
    )
    return ids, mask

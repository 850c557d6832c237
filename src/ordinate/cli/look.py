"""`ordinate look`: the heads of a model on one sentence."""

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.table import Table

from ordinate.cli.console import SafeConsole
from ordinate.core.output_folder import check_output_folder
from ordinate.core.table_export import check_ending

app = App(name="look", help="Look at the heads of a model on one sentence.")


@app.default
def look(
    model: Path,
    sentence: str,
    *,
    target: str | None = None,
    ablate: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    out: Path | None = None,
    tables: str = "csv",
    seed: int = 0,
) -> int:
    """Look at the heads of a model on one sentence, and write one offline page and its tables.

    Attention patterns with their tokens, scores split into position and content, and the kinds of heads (offset,
    first token, induction, duplicate token), each against its null. Of an encoder-decoder the sentence is the source:
    these are of its encoder, and with --target the patterns of the decoder and of its cross-attention are shown too.

    Parameters
    ----------
    model
        Folder of a model: an Ordinate model, as printed by `ordinate train`, or a transformers checkpoint.
    sentence
        The sentence, of 4 to 128 tokens.
    target
        Of an encoder-decoder, what its decoder writes for the sentence, without its start token.
    ablate
        Heads to ablate, as LAYER.HEAD counted from 0: 1.3 2.0.
    out
        Folder of the page and the tables. Default: a folder in runs/ named after the model.
    tables
        Format of the tables: csv, or parquet if pyarrow is installed.
    seed
        Random seed.
    """
    from ordinate.probing.instrumentation.trained_length import model_name
    from ordinate.probing.runner.look import look as look_at

    heads = [parse_head(text) for text in ablate]
    check_ending(f".{tables}")
    folder = out or Path("runs") / f"look-{model_name(model)}"
    check_output_folder(folder, (".html", f".{tables}"))
    console = SafeConsole()
    seen = look_at(model, sentence, target=target, ablate=heads, seed=seed)
    console.print(str(seen), soft_wrap=True)
    console.print(_table(seen.table().rows))
    files = seen.save(folder, command=shlex.join(["ordinate", *sys.argv[1:]]), ending=f".{tables}")
    console.print(f"page: {files[0]}", soft_wrap=True)
    return 0


def parse_head(text: str) -> tuple[int, int]:
    """Parse LAYER.HEAD, both from 0.

    Raises:
        ValueError: the text is not of this form.
    """
    found = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", text)
    if found is None:
        raise ValueError(f"a head is LAYER.HEAD, both counted from 0; got {text!r}; give one such as 1.3")
    return int(found[1]), int(found[2])


def _table(rows: tuple[tuple[object, ...], ...]) -> Table:
    table = Table("head", "kinds", "cannot be told", "due to position")
    for name, _, _, kinds, unclear, position, *_ in rows:
        table.add_row(str(name), str(kinds), str(unclear), f"{position:.2f}".replace("-0.00", "0.00"))
    return table

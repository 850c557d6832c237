"""`ordinate compare`: models, or the checkpoints of a training run, on the same texts."""

import shlex
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ordinate.cli.console import SafeConsole
from ordinate.cli.progress import console_progress
from ordinate.core.output_folder import check_output_folder
from ordinate.core.table_export import check_ending

app = App(name="compare", help="Compare models, or the checkpoints of a training run, on the same texts.")


@app.default
def compare(
    *models: Path,
    text: str | None = None,
    lengths: Annotated[tuple[int, ...], Parameter(consume_multiple=True)] = (),
    tokens: Annotated[tuple[int, ...], Parameter(consume_multiple=True)] = (),
    trained_length: int | None = None,
    samples: int | None = None,
    out: Path = Path("runs/compare"),
    tables: str = "csv",
    seed: int = 0,
) -> int:
    """Compare models on the same texts: losses by length and by position, and their heads.

    Paired differences with intervals, corrected p-values, heads matched with those of the model before, the kinds of
    heads, and curves over the training steps of checkpoints. One offline page, its tables, and its charts as SVG.

    Parameters
    ----------
    models
        Two or more: folders of models, of training runs (studies/NAME/runs/RUN), whose checkpoints are taken, or of
        single checkpoints (RUN/checkpoints/step-00000200).
    text
        The text: a corpus by name (see `ordinate list corpora`), or a file or folder. Default: the held-out text of
        the study that trained the models, for other Ordinate models stdlib, for all others docs (English prose).
    lengths
        Lengths as multiples of the trained length: by default 1 2 4 8.
    tokens
        Lengths in tokens, in place of --lengths.
    trained_length
        Tokens of the training sequences, if the files of the models do not say it.
    samples
        Largest number of pieces of text of the longest length.
    out
        Folder of the page, the tables and the charts.
    tables
        Format of the tables: csv, or parquet if pyarrow is installed.
    seed
        Random seed.
    """
    from ordinate.probing.runner.compare import compare as compare_models

    check_ending(f".{tables}")
    check_output_folder(out, (".html", ".svg", f".{tables}"))
    console = SafeConsole()
    with closing(console_progress(SafeConsole(stderr=True))) as display:
        sizes: dict[str, Any] = {"lengths": lengths or None, "tokens": tokens or None, "samples": samples}
        sizes |= {"trained_length": trained_length, "seed": seed}
        found = compare_models(*models, text=text, **sizes, on_progress=display.on_progress)
    console.print(str(found), soft_wrap=True)
    for caveat in found.finding.caveats:
        console.print(caveat, soft_wrap=True)
    files = found.save(out, command=shlex.join(["ordinate", *sys.argv[1:]]), ending=f".{tables}")
    console.print(f"page: {files[0]}", soft_wrap=True)
    return 0

"""`ordinate evaluate`: how well models read a text at several lengths."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from ordinate.cli.console import SafeConsole
from ordinate.cli.progress import console_progress
from ordinate.core.checks import need
from ordinate.core.output_folder import check_output_file

if TYPE_CHECKING:
    from ordinate.evaluation.outcome import Evaluation
    from ordinate.evaluation.result import ModelResult

app = App(name="evaluate", help="Evaluate trained or published models on a text at several lengths.")


@app.default
def evaluate(
    *models: Path,
    text: str | None = None,
    images: str | None = None,
    pairs: str | None = None,
    lengths: Annotated[tuple[int, ...], Parameter(consume_multiple=True)] = (),
    tokens: Annotated[tuple[int, ...], Parameter(consume_multiple=True)] = (),
    trained_length: int | None = None,
    samples: int | None = None,
    json: Path | None = None,
) -> int:
    """Evaluate models on a held-out text at their trained length and beyond.

    Decoders are measured in bits per byte, encoders in bits per masked token, encoder-decoders in bits per byte of
    the targets of sentence pairs, vision models by accuracy. Several models are compared on the same documents.

    Parameters
    ----------
    models
        Folders of models: Ordinate models, as printed by `ordinate train`, or transformers checkpoints.
    text
        The text: a corpus by name (see `ordinate list corpora`), or a file or folder. Default: the held-out text of
        the study that trained the models, for other Ordinate models stdlib, for all others docs (English prose).
    images
        For vision models: digits, or a folder with one sub-folder for each class.
    pairs
        For encoder-decoders: docstrings, gettext:LANGUAGE, or a file or folder of pairs.
    lengths
        Lengths as multiples of the trained length: by default 1 2 4 8; for pairs, which are concatenated, 1 2 or as
        in their study; for images, which are enlarged, 1.
    tokens
        Lengths in tokens, in place of --lengths.
    trained_length
        Tokens of the training sequences, if the files of the model do not say it or say it wrongly.
    samples
        Largest number of pieces of text of the longest length, of pairs or of images; by default as many as the study
        that trained the models took, otherwise 64, 256 or 512.
    json
        Also write the result to this file.
    """
    _check(models, text, images, pairs, tokens, trained_length)
    if json is not None:
        check_output_file(json, "--json")
    console, multiples = SafeConsole(), lengths or None
    with closing(console_progress(SafeConsole(stderr=True))) as display:
        sizes: dict[str, Any] = {"samples": samples, "on_progress": display.on_progress, "lengths": multiples}
        if images is not None:
            from ordinate.probing.runner.evaluate_images import evaluate_images

            found = evaluate_images(*models, images=images, **sizes)
        elif pairs is not None:
            from ordinate.probing.runner.evaluate_pairs import evaluate_pairs

            found = evaluate_pairs(*models, pairs=pairs, trained_length=trained_length, **sizes)
        else:
            from ordinate.probing.runner.evaluate import evaluate as evaluate_text

            sizes |= {"tokens": tokens or None, "trained_length": trained_length}
            found = evaluate_text(*models, text=text, **sizes)
    _print(console, found)
    if json is not None:
        found.save(json)
        console.print(f"result: {json}", soft_wrap=True)
    return 0


def _check(
    models: tuple[Path, ...],
    text: str | None,
    images: str | None,
    pairs: str | None,
    tokens: tuple[int, ...],
    trained_length: int | None,
) -> None:
    """Check that options go together: one that would have no effect is an error."""
    need(bool(models), "evaluate needs a model", "got none", "give the folder of one")
    given = [f"--{name}" for name, value in {"text": text, "images": images, "pairs": pairs}.items() if value]
    need(len(given) < 2, "models are evaluated on one kind of data", f"got {' and '.join(given)}", "give one")
    of_text = {"--tokens": tokens, "--trained-length": None if pairs else trained_length}
    idle = [name for name, value in of_text.items() if value]
    need(
        not (images or pairs) or not idle,
        f"{''.join(given)} has no such option",
        f"got {' '.join(idle)}",
        "leave it out",
    )


def _print(console: SafeConsole, found: "Evaluation") -> None:
    """Print the answer, then a table for each model, then what else must be known."""
    console.print(str(found), soft_wrap=True)
    console.print()
    console.print_whole(_values(found))
    if found.differences:
        console.print_whole(_differences(found))
    for model in found.models:
        for reason in dict.fromkeys(left.reason for left in model.left_out):
            sizes = ", ".join(f"{left.length:,}" for left in model.left_out if left.reason == reason)
            console.print(f"left out: {model.name} at {sizes} {model.extent_unit}: {reason}", soft_wrap=True)
    trained = dict[str, list[str]]()
    for model in found.models:
        trained.setdefault(_trained(model), []).append(model.name)
    noun = "size" if found.models[0].extent_unit == "pixels" else "length"
    for length, names in trained.items():
        console.print(f"trained {noun} of {', '.join(names)}: {length}", soft_wrap=True)
    intervals = f"95 % intervals over {found.count} {found.units} of {found.data}"
    console.print(" ".join([f"{intervals}; changes are paired, on the same data.", *found.notes]), soft_wrap=True)


def _length(times: int, length: int) -> str:
    return f"{length:,} ({times}x)" if times else f"{length:,}"


def _trained(model: "ModelResult") -> str:
    if model.trained_length is None:
        return "not known"
    return f"{model.trained_length:,} {model.extent_unit} ({model.trained_length_source})"


def _values(found: "Evaluation") -> Table:
    from ordinate.evaluation.wording import bounds, change, gap, number

    units = dict.fromkeys(model.unit for model in found.models)
    table = Table("model", found.models[0].extent_unit, " / ".join(units), "change")
    for model in found.models:
        for place, one in enumerate(model.lengths):
            by, interval = change(model, one)
            worse = " worse" if one.is_worse else ""
            table.add_row(
                Text("" if place else model.name),
                _length(one.times, one.length),
                f"{number(model, one.value)} {bounds(model, one.interval)}",
                "" if one is model.reference else f"{gap(model, by)} {bounds(model, interval)}{worse}",
            )
    return table


def _differences(found: "Evaluation") -> Table:
    from ordinate.evaluation.wording import bounds, gap

    model = found.models[0]
    table = Table("models", model.extent_unit, "difference", "p, corrected")
    for one in found.differences:
        table.add_row(
            Text(f"{one.first} - {one.second}"),
            _length(one.times, one.length),
            f"{gap(model, one.difference)} {bounds(model, one.interval)}",
            f"{one.adjusted:.2g}{' significant' if one.significant else ''}",
        )
    return table

"""`ordinate probe`: what position does inside a model."""

import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ordinate.checks import need_positive

if TYPE_CHECKING:
    from ordinate.lab.conduct import Question
    from ordinate.probe import Material
    from ordinate.subject import Subject, Unfit

app = App(name="probe", help="Measure what position does inside a model.")
STYLES = {"measured": "green", "skipped": "yellow", "failed": "bold red", "kept": "cyan"}


@dataclass(frozen=True)
class Amount:
    """How much of a text is read."""

    sequences: Annotated[int, Parameter(help="Pieces of text at most.")] = 64
    length: Annotated[int, Parameter(help="Tokens of a piece; no more than the model takes.")] = 512
    budget: Annotated[
        float,
        Parameter(help="Operations a question may spend on looking, 2/3 of it on changing; beyond, less is read."),
    ] = 6.2e12

    def __post_init__(self) -> None:
        need_positive("budget", self.budget)


@app.default
def probe(
    model: Path | None = None,
    *,
    text: str = "stdlib",
    images: Path | None = None,
    questions: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
    out: Path | None = None,
    amount: Annotated[Amount, Parameter(name="*")] = Amount(),
    stage: int | None = None,
    seed: int = 0,
) -> int:
    """Measure what position does inside a model, and write one offline report.

    The same command goes on where it was interrupted, and asks nothing that has been answered.

    Parameters
    ----------
    model
        Folder of a model: one of ours, as `ordinate train` prints it, or of transformers. By default the decoder that
        the last study trained here; if there is none, a small one is trained first.
    text
        What it reads: a corpus by name (see `ordinate list corpora`), or a file or folder of yours.
    images
        What a model of images reads: an .npy file of shape (images, channels, rows, columns).
    questions
        What to ask, by name, options inline: order,survival; by default everything (see `ordinate list probes`).
    out
        Folder for the findings and the report; by default one in runs/ named after the model.
    amount
        How much of the text is read.
    stage
        Which stack of layers is measured where there are several, as in Swin, counted from 1; by default the longest.
    seed
        Decides every random number.
    """
    from ordinate.lab.answer import attached, material_of
    from ordinate.lab.conduct import conduct
    from ordinate.lab.conduct import questions as parsed
    from ordinate.lab.folder import Folder
    from ordinate.lab.material import fitting
    from ordinate.lab.model import identity
    from ordinate.report.build import build_findings

    console = Console(highlight=False)
    asked = parsed(_listed(questions))
    place = model or _default(console)
    subject = attached(place, _name(place), stage)
    part = {} if stage is None else {"stage": stage}
    ending = "" if stage is None else f"-stage-{stage}"
    folder = Folder(out or Path("runs") / f"probe-{_name(place)}{ending}")
    with folder.lock():
        sizes = {"sequences": amount.sequences, "length": amount.length}
        material = _images(images) if images else material_of(subject, text, **sizes)
        if not isinstance(material, Exception):
            material = replace(fitting(subject, material), budget=amount.budget)
            console.print(f"it reads {material.source}", markup=False, soft_wrap=True)
        inputs: dict[str, Any] = {"model": _name(place), "files": identity(place), "text": str(images or text)}
        inputs |= sizes | {"budget": amount.budget, "seed": seed, "read": _digest(material)} | part
        folder.open(inputs, _about(_name(place), subject, material))
        with _Bars(console) as bars:
            failed = conduct(asked, subject, material, folder, seed, bars)
    console.print(f"report: {build_findings(folder.path)}", soft_wrap=True)
    return 1 if failed or isinstance(subject, Exception) else 0


class _Bars:
    """A bar for each question, or lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[how]}"))
        self.progress = Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)
        self.console, self.bars = console, dict[str, TaskID]()

    def __enter__(self) -> "_Bars":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def asked(self, question: "Question") -> None:
        """Begin a bar."""
        self.bars[question.name] = self.progress.add_task(question.name, total=1.0, how="measuring")

    def told(self, question: "Question", done: float) -> None:
        """Move it."""
        self.progress.update(self.bars[question.name], completed=done)

    def ended(self, question: "Question", how: str, why: str) -> None:
        """Say how it ended."""
        bar = self.bars.get(question.name)
        if bar is not None:
            self.progress.update(bar, completed=1.0, how=how)
            self.progress.stop_task(bar)
        # what was asked before is said in a word: the report holds it
        said = "answered before" if how == "kept" else f"{how}: {why}"
        self.progress.console.print(question.name, style=STYLES[how], end=" ")
        self.progress.console.print(said, markup=False, soft_wrap=True)


def _listed(given: tuple[str, ...]) -> list[str]:
    """Names with their options, as they come between spaces or commas."""
    found: list[str] = []
    for part in (part for line in given for part in line.split(",")):
        # what holds = and no : is one more option of the question before it
        if "=" in part and ":" not in part and found:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def _default(console: Console) -> Path:
    from ordinate.lab.model import last_trained, train_small

    def say(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    found = last_trained()
    if found is None:
        say("no model was named, and no study has trained one here: a small decoder is trained first")
        found = train_small(say)
    say(f"the model: {found}")
    return found


def _name(place: Path) -> str:
    """What a model's folder is called; one named model after the run that it belongs to."""
    path = place.resolve()
    return path.parent.name if path.name == "model" else path.name


def _images(file: Path) -> "Material":
    import numpy as np
    import torch

    from ordinate.checks import need
    from ordinate.probe import Material

    pixels: Any = None
    with suppress(OSError, ValueError, EOFError):
        pixels = np.load(file)
    numbers = isinstance(pixels, np.ndarray) and pixels.dtype.kind in "fiub"
    need(numbers, "images are numbers in an .npy file", f"{file} is none", "write them by numpy.save")
    came = f"{file} holds {pixels.shape}"
    need(pixels.ndim == 4, "images have the axes (images, channels, rows, columns)", came, "reshape them")
    finite = bool(np.isfinite(pixels).all())
    need(finite, "images are finite numbers", f"{file} holds others (nan, inf)", "leave those images out")
    return Material(None, torch.from_numpy(pixels).float(), f"{len(pixels)} images of {file.name}")


def _digest(material: "Material | Unfit") -> str:
    import hashlib

    if isinstance(material, Exception):
        return str(material)
    held = material.images if material.ids is None else material.ids
    return "" if held is None else hashlib.sha256(held.numpy().tobytes()).hexdigest()[:16]


def _about(name: str, subject: "Subject | Unfit", material: "Material | Unfit") -> dict[str, Any]:
    command = shlex.join(["ordinate", *sys.argv[1:]])
    if isinstance(subject, Exception):
        return {"facts": {"name": name}, "read": str(subject), "command": command}
    facts = subject.facts
    told = {name: getattr(facts, name) for name in facts.__dataclass_fields__}
    read = str(material) if isinstance(material, Exception) else material.source
    told |= {"dtype": str(facts.dtype).removeprefix("torch.")}
    told |= {name: list(told[name]) for name in ("grid", "image") if told[name]}
    return {"facts": told, "read": read, "command": command}

"""`ordinate probe`: run the probes on a model and write a report."""

import shlex
import sys
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.console import Console

from ordinate.cli.console import SafeConsole
from ordinate.cli.progress import console_progress
from ordinate.core.checks import need_positive, need_seed
from ordinate.core.output_folder import check_output_folder

if TYPE_CHECKING:
    from ordinate.probing._adapter import ModelAdapter, NotApplicable
    from ordinate.probing._probe import ProbeData

app = App(name="probe", help="Probe how a model uses position.")


@dataclass(frozen=True)
class SampleOptions:
    """The amount of text that the probes use."""

    samples: Annotated[int, Parameter(help="Maximum number of text samples.")] = 64
    length: Annotated[int, Parameter(help="Tokens of a sample; limited to the maximum length of the model.")] = 512
    budget: Annotated[
        float,
        Parameter(
            help="Operations a probe may spend on observation passes, and 2/3 as many on interventions; if all "
            "samples would cost more, fewer or shorter ones are used."
        ),
    ] = 6.2e12

    def __post_init__(self) -> None:
        need_positive("budget", self.budget)


@dataclass(frozen=True)
class PartOptions:
    """The part of the model that is probed."""

    layer_stack: Annotated[
        int | None,
        Parameter(
            help="Stack of layers to probe if there are several, as in Swin, counted from 1. Default: the longest."
        ),
    ] = None
    part: Annotated[
        Literal["encoder", "decoder"] | None,
        Parameter(help="Part of an encoder-decoder: encoder, or decoder (its self-attention). Default: encoder."),
    ] = None
    source: Annotated[str | None, Parameter(help="Sentence that the decoder reads as its source.")] = None

    @property
    def given(self) -> dict[str, Any]:
        """What is given, by the names of `attach`."""
        named = {"stage": self.layer_stack, "part": self.part, "source": self.source}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def ending(self) -> str:
        """What it adds to the name of a folder."""
        stage = "" if self.layer_stack is None else f"-stage-{self.layer_stack}"
        return stage if self.part is None else f"{stage}-{self.part}"


@app.default
def probe(
    model: Path | None = None,
    *,
    text: str | None = None,
    images: Path | None = None,
    probes: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    out: Path | None = None,
    amount: Annotated[SampleOptions, Parameter(name="*")] = SampleOptions(),
    layers: Annotated[PartOptions, Parameter(name="*")] = PartOptions(),
    seed: int = 0,
) -> int:
    """Probe how a model uses position, and write a self-contained HTML report.

    The same command resumes after an interruption and skips probes that have a finding.

    Parameters
    ----------
    model
        Folder of a model: an Ordinate model, as printed by `ordinate train`, or a transformers checkpoint. Default:
        the best decoder of the last study in runs/; if there is none, a small one is trained first.
    text
        Input text: a corpus by name (see `ordinate list corpora`), or a file or folder. Default: for a model of a
        study the text of that study, for any other of Ordinate's stdlib (Python source), for all others docs
        (English prose).
    images
        Input of a vision model: an .npy file of shape (images, channels, rows, columns).
    probes
        Probes to run, by name, with options: order_sensitivity:windows=2;8,position_retention. Default: all (see
        `ordinate list probes`).
    out
        Folder for the findings and the report. Default: a folder in runs/ named after the model.
    amount
        Number and length of the samples, and the compute budget.
    layers
        The part of the model that is probed.
    seed
        Random seed.
    """
    from ordinate.probing.runner.api import text_data, try_attach
    from ordinate.probing.runner.default_model import model_fingerprint
    from ordinate.probing.runner.probe_data import check_input
    from ordinate.probing.runner.probe_folder import ProbeFolder
    from ordinate.probing.runner.probe_runner import parse_probes, run_probes
    from ordinate.report.build import build_findings

    console, asked = SafeConsole(), parse_probes(_listed(probes))
    need_seed(seed)
    check_output_folder(out or Path("runs"), ())
    place = model or _default(console)
    subject = try_attach(place, _name(place), **layers.given)
    folder = ProbeFolder(out or Path("runs") / f"probe-{_name(place)}{layers.ending}")
    with folder.lock():
        sizes = {"sequences": amount.samples, "length": amount.length}
        material = _images(images) if images else text_data(subject, text, **sizes, folder=place)
        if not isinstance(material, Exception):
            material = replace(check_input(subject, material), budget=amount.budget)
            console.print(f"input: {material.source}", markup=False, soft_wrap=True)
        elif not isinstance(subject, Exception):
            raise material  # there is no input, or too little of it
        inputs = {"model": _name(place), "files": model_fingerprint(place), "text": str(images or text or "default")}
        inputs |= {**sizes, "budget": amount.budget, "seed": seed, "read": _digest(material), **layers.given}
        folder.open(inputs, _about(_name(place), subject, material))
        with closing(console_progress(console)) as display:
            failed = run_probes(asked, subject, material, folder, seed, display.on_progress)
    console.print(f"report: {build_findings(folder.path)}", soft_wrap=True)
    return int(bool(failed) or isinstance(subject, Exception))


def _listed(given: tuple[str, ...]) -> list[str]:
    """Split names with options that are separated by spaces or commas."""
    found: list[str] = []
    for part in (part for line in given for part in line.split(",")):
        # a part with = but without : is a further option of the preceding name
        if "=" in part and ":" not in part and found:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def _default(console: Console) -> Path:
    from ordinate.probing.runner.default_model import last_trained, train_small

    found = last_trained()
    if found is None:
        console.print(
            "no model given, and no study in runs/ has trained one: training a small decoder first", soft_wrap=True
        )
        with closing(console_progress(console)) as display:
            found = train_small(display.on_progress)
    console.print(f"model: {found}", markup=False, soft_wrap=True)
    return found


def _name(place: Path) -> str:
    """The name of a model's folder, or of its run if the folder is called model."""
    path = place.resolve()
    return path.parent.name if path.name == "model" else path.name


def _images(file: Path) -> "ProbeData":
    import numpy as np
    import torch

    from ordinate.core.checks import need
    from ordinate.probing._probe import ProbeData

    pixels: Any = None
    with suppress(OSError, ValueError, EOFError):
        pixels = np.load(file)
    numbers = isinstance(pixels, np.ndarray) and pixels.dtype.kind in "fiub"
    need(numbers, "images must be a numeric array in an .npy file", f"{file} is not", "write it by numpy.save")
    came = f"got shape {pixels.shape} in {file}"
    need(pixels.ndim == 4, "images must have the axes (images, channels, rows, columns)", came, "reshape them")
    finite = bool(np.isfinite(pixels).all())
    need(finite, "images must be finite", f"{file} contains nan or inf", "remove those images")
    return ProbeData(None, torch.from_numpy(pixels).float(), f"{len(pixels)} images of {file.name}")


def _digest(material: "ProbeData | NotApplicable") -> str:
    import hashlib

    if isinstance(material, Exception):
        return str(material)
    held = material.images if material.ids is None else material.ids
    return "" if held is None else hashlib.sha256(held.numpy().tobytes()).hexdigest()[:16]


def _about(
    name: str, subject: "ModelAdapter | NotApplicable", material: "ProbeData | NotApplicable"
) -> dict[str, Any]:
    command = shlex.join(["ordinate", *sys.argv[1:]])
    if isinstance(subject, Exception):
        return {"facts": {"name": name}, "read": str(subject), "command": command}
    facts = subject.info
    known = {name: getattr(facts, name) for name in facts.__dataclass_fields__}
    read = str(material) if isinstance(material, Exception) else material.source
    known |= {"trained_length": subject.trained_length, "dtype": str(facts.dtype).removeprefix("torch.")}
    known |= {"special_tokens": len(facts.special_tokens)}
    known |= {name: list(known[name]) for name in ("grid", "image") if known[name]}
    return {"facts": known, "read": read, "command": command}

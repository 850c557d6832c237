"""Gates of strings: schemes, mixers, tasks and tokenizers with their options inline."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import torch

from ordinate import Decoder, Shape
from ordinate.core import catalog
from ordinate.data.tokenizer import Tokenizer, make_tokenizer
from ordinate.mixers._mixer import Mixer
from ordinate.models.vision import VisionShape, VisionTransformer
from ordinate.schemes import Scheme
from ordinate.schemes.spectra._spectrum import Spectrum
from ordinate.study.data_source import task_class
from tests.bad_input.intake.mutation import WORDS, misspelt, shown
from tests.bad_input.intake.outcome import Attempt

KINDS = {
    "ordinate.schemes": Scheme,
    "ordinate.mixers": Mixer,
    "ordinate.data.tokenizers": Tokenizer,
}
SIZES = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 2, "max_length": 32}


def scheme(draw: random.Random, folder: Path) -> Attempt:
    """The specification of a scheme: an option with another value, a name misspelt, or a broken combination."""
    text, names = specification("ordinate.schemes", draw)
    if draw.random() < 0.2:
        other, others = specification("ordinate.schemes", draw)
        text += draw.choice("+/,") + other
        names = (*names, *others)
    return Attempt(shown(text), names, lambda: model(text))


def mixer(draw: random.Random, folder: Path) -> Attempt:
    """The specification of a mixer, likewise."""
    text, names = specification("ordinate.mixers", draw)

    def ask() -> torch.Tensor:
        kind = catalog.load("ordinate.mixers", Mixer, catalog.parse(text)[0])
        return model(kind.default_scheme, mixer=text)

    return Attempt(shown(text), names, ask)


@torch.no_grad()
def model(text: str, mixer: str = "softmax") -> torch.Tensor:
    """What a tiny model with a scheme gives: of images if the scheme needs two axes, else of tokens."""
    name = text.partition(":")[0]
    flat = name not in ("axial", "mixed", "grid", "learned_grid", "swin", "fourier", "sections", "continuous")
    torch.manual_seed(0)
    if flat:
        return Decoder(Shape(**SIZES, scheme=text, mixer=mixer)).eval()(torch.arange(5)[None])
    shape = VisionShape(**SIZES, scheme=text, image=(8, 8), patch=(4, 4), channels=1)
    return VisionTransformer(shape).eval()(torch.rand(1, 1, 8, 8))


def task(draw: random.Random, folder: Path) -> Attempt:
    """The specification of a task that generates its sequences, likewise."""
    text, names = specification("ordinate.data.tasks", draw, without=("text", "masked", "images", "translation"))

    def ask() -> list[torch.Tensor]:
        kind, options = task_class(text)
        made = kind(**catalog.bind(kind, options, {}))
        batch = made.sample(torch.Generator().manual_seed(0), 2)
        return [batch.inputs, batch.targets]

    return Attempt(shown(text), names, ask)


def tokenizer(draw: random.Random, folder: Path) -> Attempt:
    """The specification of a tokenizer, likewise; it is fitted to a short text."""
    text, names = specification("ordinate.data.tokenizers", draw)

    def ask() -> list[int]:
        made = make_tokenizer(*catalog.parse(text)).fitted(iter(["a text of some words, and more words"]))
        return [int(token) for token in made.encode("some more")]

    return Attempt(shown(text), names, ask)


def specification(package: str, draw: random.Random, without: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
    """Draw `name:option=value`, mistaken in one place; and the names of which a message must have one."""
    name = draw.choice([name for name in catalog.names(package) if name not in without])
    known = options(package, name)
    how = draw.random()
    if how < 0.1 or not known:
        wrong = misspelt(name, draw)
        return wrong, (wrong, name)
    option = draw.choice(known)
    value = draw.choice(WORDS)
    if how < 0.25:
        wrong = misspelt(option, draw)
        return f"{name}:{wrong}=1", (option.rpartition(".")[2], *re.split("[=,.]", wrong), wrong, name)
    if how < 0.32:
        text = draw.choice(
            [
                f"{name}:",
                f"{name}:{option}",
                f"{name}:{option}=",
                f"{name}:{option}=1,{option}=2",
                f"{name}:={value}",
                f"{name}+",
                f"+{name}",
                f"{name},,{name}",
                f"{name}:{option}=1,",
                "",
            ]
        )
        return text, (name, text, "scheme", "option")
    return f"{name}:{option}={value}", (option.rpartition(".")[2], name, "layers", "scheme")


def options(package: str, name: str) -> list[str]:
    """Return the options of a member, and those of the members that it takes."""
    member: Callable[..., object] = (
        catalog.load(package, KINDS.get(package, object), name) if package in KINDS else (task_class(name)[0])
    )
    found = list(catalog.options(member))
    if "spectrum" in found:
        for spectrum in catalog.names("ordinate.schemes.spectra"):
            inner = catalog.options(catalog.load("ordinate.schemes.spectra", Spectrum, spectrum))
            found += [f"spectrum={spectrum},spectrum.{one}" for one in inner]
    return found

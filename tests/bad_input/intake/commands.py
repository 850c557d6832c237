"""Gates of the command line and of TOML files of options: every option of every command."""

import contextlib
import io
import os
import random
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from PIL import Image

from ordinate.cli import main as command_line
from ordinate.cli import study, train
from ordinate.core.atomic_files import write_json
from ordinate.study.options import Options
from tests.bad_input.intake.checkpoints import own
from tests.bad_input.intake.mutation import TEXTS, WORDS, misspelt, shown
from tests.bad_input.intake.outcome import Attempt, Refused, Wrong

# options of `study` and `train` beside those of a plan; a Ray cluster is not started
BESIDE = {"study": ("preset", "workers", "stall-timeout-minutes", "devices", "nodes", "strategy", "logger", "out"),
          "train": ("devices", "nodes", "strategy", "logger", "out")}  # fmt: skip
SMALL = ("--task", "copy:count=4", "--width", "16", "--layers", "1", "--heads", "2", "--steps", "2")
# what a message may name in place of a word: bytes that are no text, the current folder, an argument that moved up
SHIFTED = {
    "\udcff": (r"\udcff",),
    "": (". does not", ". has no", "prompt", "sentence", "got ''"),
    "-": ("got -",),
    "--": ("text",),
}
# other commands: arguments that are right, and the options that may be wrong
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "generate": (("DECODER", "Hello"), ("max-new-tokens", "temperature", "top-k", "top-p", "seed")),
    "translate": (("TRANSLATOR", "Hello"), ("beams", "length-penalty", "max-new-tokens", "temperature", "seed",
                                            "target-length")),
    "fill": (("ENCODER", "a [MASK] c"), ("top",)),
    "list": (("schemes",), ()),
    "cite": (("rope",), ()),
    "show": (("rope",), ()),
    "report": (("EMPTY",), ("cell",)),
    "status": (("EMPTY",), ()),
    "classify": (("VISION", "IMAGE"), ("top",)),
    "check": (("ordinate.schemes:Rope",), ()),
}  # fmt: skip


class Accepted(Exception):
    """A study would now begin; holds its plan."""


def fields() -> list[str]:
    """Return the options of a plan, as they are written on the command line."""
    return [(field.alias or name).replace("_", "-") for name, field in Options.model_fields.items()]


def options(draw: random.Random, folder: Path) -> Attempt:
    """One option of one command with another value, misspelt, without its value, or given twice."""
    command = draw.choice(["study", "study", "study", "train", "train", *COMMANDS])
    if command in BESIDE:
        base, known = SMALL, [*fields(), *BESIDE[command]]
    else:
        given, listed = COMMANDS[command]
        base, known = tuple(_place(word, folder) for word in given), list(listed)
    value, how = draw.choice(WORDS), draw.random()
    if not known or (command in COMMANDS and how < 0.2):
        place = draw.randrange(len(base))
        changed = (*base[:place], value, *base[place + 1 :])
        names = (
            value[:60],
            repr(value)[1:-1][:60],
            "".join(base[place : place + 1]),
            command,
            *SHIFTED.get(value, ()),
        )
        return _attempt([command, *changed], names, folder)
    option = draw.choice(known)
    names = (
        f"--{option}",
        option,
        option.replace("-", "_"),
        option.replace("-", " "),
        option.split("-")[0],
        option.rstrip("s"),
    )
    if how < 0.4:
        wrong = misspelt(option, draw)
        return _attempt([command, *base, f"--{wrong}", "2"], (*names, wrong), folder)
    tail = draw.choice([[f"--{option}", value], [f"--{option}={value}"]])
    if _is_flag(option):
        # a flag takes no value: the next word is an argument by itself
        names = (*names, value[:60])
    # a folder without a study, and bytes that are no text, are told before any option is read
    names = (*names, *(base if "EMPTY" in COMMANDS.get(command, ((),))[0] else ()), *SHIFTED.get(value, ()))
    if how < 0.5:
        tail = [f"--{option}"]
    elif how < 0.6:
        tail = [*tail, *tail]
    return _attempt([command, *base, *tail], names, folder, option, value)


def _is_flag(option: str) -> bool:
    field = Options.model_fields.get(option.replace("-", "_"))
    return field is not None and field.annotation is bool


def toml(draw: random.Random, folder: Path) -> Attempt:
    """A TOML file of options with one key of another value, misspelt, or damaged."""
    option = draw.choice(fields()).replace("-", "_")
    names = (option, option.replace("_", "-"), "study.toml", option.split("_")[0], option.rstrip("s"))
    value, how = _literal(draw), draw.random()
    text = 'task = "copy:count=4"\nwidth = 16\nlayers = 1\nheads = 2\nsteps = 2\n'
    if how < 0.3:
        key = misspelt(option, draw)
        text += f"{key} = 2\n"
        names = (*names, key)
    elif how < 0.4:
        text += draw.choice(
            [
                f"[{option}]\nx = 1\n",
                f"[[{option}]]\n",
                "[[cells]]\nwidth = 3\n",
                f"{option}\n",
                "\0",
                f"{option} = \n",
                f"{option} = 1\n{option} = 1\n",
                "cells = 3\n",
                "[[cells]]\nq = 3\n",
                f"{option} = " + "[" * 5000,
                '"\\u001b" = 1\n',
                "[study]\nwidth = 8\n",
            ]
        )
        names = (*names, "cells", "study", "\\x1b")
    else:
        text += f"{option} = {value}\n"
    file = folder / "study.toml"
    file.write_bytes(text.encode("utf-8", "replace") if draw.random() < 0.95 else text.encode("utf-16"))
    attempt = _attempt(["study", "--config", str(file)], names, folder)
    attempt.what = shown(text.partition("steps = 2\n")[2])
    return attempt


def _literal(draw: random.Random) -> str:
    """Draw a value in TOML."""
    text = draw.choice([text for text in TEXTS if text.isprintable()])
    return draw.choice(
        ["true", "0", "-1", "1.5", "nan", "inf", "1e30", "9" * 300, "[]", "[1]", "[[1]]", "[1, 'x']", "{}",
         "{ x = 1 }", "1979-05-27", f'"{text}"', "[8, 8]", "[8, 16]", "['rope', 'none']", "1000000000000",
         f"'{'x' * 5000}'", "3"]
    )  # fmt: skip


def _attempt(words: list[str], names: tuple[str, ...], folder: Path, option: str = "", value: str = "") -> Attempt:
    def ask() -> list[float]:
        plan = executed(words, folder)
        if plan is not None and option and words.count(f"--{option}") < 2:
            _need_honoured(plan, option, value)
        return []

    return Attempt(shown(" ".join(words)), tuple(name for name in names if name) or ("",), ask)


def _need_honoured(plan: Any, option: str, value: str) -> None:
    """Raise `Wrong` unless a plan has the number that was given."""
    name = next((name for name, field in Options.model_fields.items() if (field.alias or name) == option), "")
    name = name or option.replace("-", "_")
    held = getattr(plan, name, None)
    if type(held) in (int, float):
        try:
            given = float(value)
        except ValueError:
            raise Wrong(f"{value!r} was read as {held}") from None
        if held != given and str(held) != value.strip():
            raise Wrong(f"{value!r} was read as {held}")


def executed(words: list[str], folder: Path) -> Any:
    """Run a command as its process would, up to the training of a study; returns the plan of the study."""

    def begin(plan: Any, *_: object) -> None:
        raise Accepted(plan)

    error, out = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        # both are imported before either is patched: train takes its function from study
        for module in (study, train):
            stack.enter_context(mock.patch.object(module, "run", begin))
        stack.enter_context(mock.patch.object(sys, "argv", ["ordinate", *words]))
        stack.enter_context(mock.patch.object(sys, "stdin", io.StringIO("")))
        stack.enter_context(mock.patch.dict(os.environ, {"COLUMNS": "200"}))
        stack.enter_context(working_in(folder))
        stack.enter_context(contextlib.redirect_stderr(error))
        stack.enter_context(contextlib.redirect_stdout(out))
        try:
            command_line.main()
        except Accepted as accepted:
            return accepted.args[0]
        except SystemExit as end:
            if end.code == command_line.BAD_INPUT:
                raise Refused(error.getvalue().removeprefix("error: ")) from None
            if end.code not in (command_line.GOOD, command_line.FAILED):
                raise
    return None


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Work in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@cache
def trained(kind: str) -> Path:
    """Return the folder of a tiny model with a tokenizer of bytes."""
    # an encoder has a mask token beside the bytes
    folder = own(kind, vocabulary=257 if kind == "encoder" else 256)
    write_json(folder / "tokenizer.json", {"kind": "bytes", "state": {}})
    return folder


@cache
def image() -> Path:
    """Return the file of a small image."""
    file = trained("vision") / "image.png"
    Image.new("RGB", (8, 8), (200, 100, 50)).save(file)
    return file


def _place(word: str, folder: Path) -> str:
    kinds = {"DECODER": "decoder", "TRANSLATOR": "encoder-decoder", "ENCODER": "encoder", "VISION": "vision"}
    if word in kinds:
        return str(trained(kinds[word]))
    return str({"EMPTY": folder, "IMAGE": image()}.get(word, word))


def warm() -> None:
    """Import what the commands import, so that this is not part of the time of an input."""
    for word in ("DECODER", "TRANSLATOR", "ENCODER", "VISION"):
        _place(word, Path())
    for words in (["study", *SMALL], ["train", *SMALL], *([name, "--help"] for name in COMMANDS)):
        executed(words, Path())
    for name, (given, _) in COMMANDS.items():
        with contextlib.suppress(Refused):
            executed([name, *(_place(word, Path("/")) for word in given)], Path())

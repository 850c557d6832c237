"""Gates: where Ordinate takes in what others wrote, each with a generator of wrong inputs for it."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.bad_input.intake import checkpoints, commands, folders, results, specifications, training
from tests.bad_input.intake.outcome import Attempt

Gate = Callable[[Random, Path], Attempt]
# what each gate is called in the table, and how many inputs are counted there
GATES: dict[str, tuple[Gate, int]] = {
    "config.json of a published model": (checkpoints.config, 40),
    "config.json, compared with transformers": (checkpoints.compared_config, 60),
    "config.json of every family": (checkpoints.config_of_any_family, 60),
    "config.json in Ordinate's format": (checkpoints.own_format, 50),
    "safetensors file": (checkpoints.weights, 40),
    "index of safetensors files": (checkpoints.index, 30),
    "tokenizer.json": (folders.tokenizer, 40),
    "options of commands": (commands.options, 70),
    "TOML files of options": (commands.toml, 50),
    "schemes, options inline": (specifications.scheme, 50),
    "mixers, options inline": (specifications.mixer, 40),
    "tasks, options inline": (specifications.task, 30),
    "tokenizers, options inline": (specifications.tokenizer, 20),
    "folders of text": (folders.text, 30),
    "folders of images": (folders.images, 30),
    "files of sentence pairs": (folders.pairs, 30),
    "files of a study": (results.study, 60),
    "checkpoints of training": (training.checkpoint, 40),
}


def warm() -> None:
    """Import what the gates import, and write the models, so that this is not part of the time of an input."""
    checkpoints.warm()
    commands.warm()
    training.warm()

"""A model of the user in the explorer: what fits is said before its weights are read."""

from dataclasses import replace
from pathlib import Path
from typing import cast

from ordinate.core.checks import need
from ordinate.explorer.model_facts import MOST_PARAMETERS, check_model, packed_model
from ordinate.explorer.packing import PackedModel
from ordinate.explorer.token_facts import read_token_facts
from ordinate.models.decoder import Decoder
from ordinate.pretrained.checkpoint_files import CONFIG
from ordinate.pretrained.read_model import read_model
from ordinate.probing.instrumentation.trained_length import training_of

# a parameter of a file has four bytes at most, and its header some thousands
LARGEST_FILE = 4 * MOST_PARAMETERS + 100_000
NAME_LETTERS = 40


def read_own_model(folder: Path) -> PackedModel:
    """Return the decoder in a folder, to be shown beside the models of the package.

    Args:
        folder: as printed by `ordinate train`, runs/NAME/model of a study, or a published checkpoint.

    Raises:
        ValueError: no model, one that is too large, or one whose settings or tokenizer the page does not have.
    """
    remedy = "give the folder that `ordinate train` prints, or a checkpoint"
    need((folder / CONFIG).is_file(), f"a model folder must contain {CONFIG}", f"{folder} does not", remedy)
    # a large checkpoint is in several
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    need(
        size <= LARGEST_FILE,
        f"a model of the explorer has at most {MOST_PARAMETERS:,} parameters, so that it answers while you type",
        f"the weights in {folder} have {size:,} bytes",
        "use `ordinate look` or `ordinate probe` for larger ones",
    )
    model = cast(Decoder, read_model(folder, "decoder").eval())
    check_model(model)
    # runs/NAME/model: the name of the run says more
    resolved = folder.resolve()
    named = resolved.parent.name if resolved.name == "model" else resolved.name
    tokens = read_token_facts(folder, model.shape.vocabulary)
    packed = packed_model(model, "own", title=f"{named[:NAME_LETTERS]} (yours)", tokens=tokens)
    trained = training_of(model, folder).length
    return packed if trained is None else replace(packed, facts={**packed.facts, "trained_length": trained})

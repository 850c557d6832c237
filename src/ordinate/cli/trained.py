"""The trained model that a command uses: of the right kind, with its tokenizer."""

from pathlib import Path
from typing import TYPE_CHECKING

from ordinate.checks import need

if TYPE_CHECKING:
    from ordinate.models.kinds import Model
    from ordinate.tokenizer import Tokenizer


def trained(folder: Path, kind: str) -> "Model":
    """The model of a folder, ready to be used.

    Args:
        folder: as `ordinate train` prints it, or of a published model.
        kind: what it must be: decoder, encoder, encoder-decoder or vision.

    Raises:
        ValueError: no model there, or one of another kind; the message names a folder or a command that fits.
    """
    from ordinate.checkpoints.files import CONFIG
    from ordinate.checkpoints.read import read_model

    inside = sorted(folder.glob("runs/*/model")) if folder.is_dir() else []
    need(
        (folder / CONFIG).is_file(),
        f"a model folder holds {CONFIG}",
        f"{folder} lacks it",
        f"give one of: {', '.join(map(str, inside))}" if inside else "give the folder that `ordinate train` prints",
    )
    return read_model(folder, kind).eval()


def trained_reader(folder: Path, kind: str) -> "tuple[Tokenizer, Model]":
    """The tokenizer and the model of a folder, for a kind that reads text; the arguments are those of `trained`.

    Raises:
        ValueError: likewise, or no tokenizer beside it, or that of another model.
    """
    from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
    from ordinate.tokenizer import FILE, load_tokenizer

    model, beside = trained(folder, kind), "put the one beside it that it was trained with"
    need((folder / FILE).is_file(), f"a model that reads text has a {FILE}", f"{folder} has none", beside)
    tokenizer, shape = load_tokenizer(folder), model.shape
    # an encoder-decoder may have a table of its own for what it reads
    known = (shape.source_vocabulary if isinstance(shape, EncoderDecoderShape) else None) or shape.vocabulary
    came = f"got {tokenizer.size} tokens for a model of {known}"
    need(tokenizer.size <= known, "the model knows every token of its tokenizer", came, beside)
    return tokenizer, model

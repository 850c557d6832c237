"""Load the trained model given to a command, and its tokenizer."""

from pathlib import Path
from typing import TYPE_CHECKING

from ordinate.core.checks import need

if TYPE_CHECKING:
    from ordinate.data.tokenizer import Tokenizer
    from ordinate.models.registry import Model
    from ordinate.models.shape import Shape


def load_trained(folder: Path, kind: str | None = None) -> "Model":
    """Load the model in a folder, in evaluation mode.

    Args:
        folder: a folder printed by `ordinate train`, or of a published model.
        kind: the required kind: decoder, encoder, encoder-decoder or vision; None: any.

    Raises:
        ValueError: no model, or one of another kind; the message names a folder or command that fits.
    """
    from ordinate.pretrained.checkpoint_files import CONFIG
    from ordinate.pretrained.read_model import read_model

    inside = sorted(folder.glob("runs/*/model")) if folder.is_dir() else []
    need(
        (folder / CONFIG).is_file(),
        f"a model folder must contain {CONFIG}",
        f"{folder} does not",
        f"give one of: {', '.join(map(str, inside))}" if inside else "give the folder that `ordinate train` prints",
    )
    return read_model(folder, kind).eval()


def load_trained_text_model(folder: Path, kind: str) -> "tuple[Tokenizer, Model]":
    """Load tokenizer and model from a folder, for models of text; arguments as in `load_trained`.

    Raises:
        ValueError: as in `load_trained`, or the tokenizer is missing or belongs to another model.
    """
    model = load_trained(folder, kind)
    return load_trained_tokenizer(folder, model.shape), model


def load_trained_tokenizer(folder: Path, shape: "Shape") -> "Tokenizer":
    """Load the tokenizer of a model of texts from its folder.

    Raises:
        ValueError: it is missing, or belongs to another model.
    """
    from ordinate.data.tokenizer import FILE, load_tokenizer
    from ordinate.models.encoder_decoder_shape import EncoderDecoderShape

    beside = f"add the {FILE} that the model was trained with"
    need((folder / FILE).is_file(), f"a text model's folder must contain {FILE}", f"{folder} does not", beside)
    tokenizer = load_tokenizer(folder)
    # an encoder-decoder may have a separate source vocabulary
    known = (shape.source_vocabulary if isinstance(shape, EncoderDecoderShape) else None) or shape.vocabulary
    came = f"got {tokenizer.size} tokens for a model of {known}"
    need(tokenizer.size <= known, "every token of the tokenizer must be in the model's vocabulary", came, beside)
    return tokenizer

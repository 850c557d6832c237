"""`ordinate classify`: classify images or texts."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from ordinate.cli.console import SafeConsole
from ordinate.cli.load_trained import load_trained, load_trained_tokenizer
from ordinate.core.checks import need, need_positive

if TYPE_CHECKING:
    from torch import Tensor

    from ordinate.data.tokenizer import Tokenizer
    from ordinate.models.decoder import Decoder
    from ordinate.models.encoder import Encoder
    from ordinate.models.vision import VisionTransformer

app = App(name="classify", help="Classify images or texts with a trained model.")
# what config.json calls logits that are no softmax: several classes at once, or numbers
SEVERAL, NUMBERS = "multi_label_classification", "regression"
Rows = Iterator[tuple[str, "Tensor"]]


@app.default
def classify(model: Path, *inputs: str, top: Annotated[int, Parameter(alias="-n")] = 3) -> int:
    """Classify images or texts: the most probable classes of each, with their probabilities.

    A classifier of tokens gives the classes of each token, a reward model its score.

    Parameters
    ----------
    model
        Folder of a vision model, as `ordinate train --model vision` prints it, or of a published one (ViT, DINOv2
        with a head: config.json, safetensors, and preprocessor_config.json for the preprocessing); or of a published
        classifier of texts or tokens, with its tokenizer.json.
    inputs
        Image files (PNG, JPEG, or another format that pillow reads); or texts.
    top
        Number of classes shown for each.
    """
    import torch

    from ordinate.models.text_head import CLASSIFIERS
    from ordinate.models.vision import VisionTransformer
    from ordinate.pretrained.checkpoint_files import read_config
    from ordinate.pretrained.read_model import kind_of

    need_positive("top", top)
    need(len(inputs) > 0, "classify needs images or texts", "got none", "give files of images, or texts in quotes")
    found = load_trained(model)
    name, kind = kind_of(type(found))
    must = f"classify needs a model with a head for classes ({', '.join(CLASSIFIERS)})"
    came = f"{model} has head={found.shape.head!r}, of kind {name}"
    predicts = found.shape.head in ("next_token", "masked")
    use = f"use it with `ordinate {kind.command}`" if predicts else "give another model"
    need(found.shape.head in CLASSIFIERS, must, came, use)
    images = isinstance(found, VisionTransformer)
    rows, names = _images(model, found, inputs) if images else _texts(model, cast("Decoder | Encoder", found), inputs)
    problem = read_config(model).get("problem_type")
    scored = problem == NUMBERS or len(names) == 1
    table = Table("image" if images else "text", "class", "score" if scored else "probability")
    with torch.inference_mode():
        for heading, logits in rows:
            values = logits if scored else logits.sigmoid() if problem == SEVERAL else logits.softmax(-1)
            best = values.topk(min(top, len(names)))
            for rank, (value, place) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
                shown = f"{value:.4g}" if scored else f"{value:.1%}"
                table.add_row(Text("" if rank else heading), Text(names[place]), shown)
    SafeConsole().print(table)
    return 0


def _images(folder: Path, model: "VisionTransformer", files: Sequence[str]) -> tuple[Rows, Sequence[str]]:
    """Return each image with its logits, and the names of the classes."""
    from ordinate.data.image_preprocessing import ImagePreprocessor, class_names

    view = ImagePreprocessor.from_folder(folder, model.vision.image, model.vision.channels)
    names = class_names(folder, model.vision.labels, model.vision.vocabulary)
    return ((file, model.logits(model(view.read(Path(file))[None])).float()[0]) for file in files), names


def _texts(folder: Path, model: "Decoder | Encoder", texts: Sequence[str]) -> tuple[Rows, Sequence[str]]:
    """Return each text, or each of its tokens, with its logits, and the names of the classes."""
    tokenizer = load_trained_tokenizer(folder, model.shape)
    return (row for text in texts for row in _classified(model, tokenizer, text)), model.shape.labels


def _classified(model: "Decoder | Encoder", tokenizer: "Tokenizer", text: str) -> Rows:
    """Yield a text, or each of its tokens, with its logits."""
    import torch

    ids = [int(token) for token in tokenizer.encode(text)]
    need(len(ids) > 0, "a text to classify must have a token", f"got {text!r}", "give another text")
    logits = model.class_logits(torch.tensor([ids])).float()[0]
    if model.shape.head == "classes":
        yield text, logits
        return
    for token, row in zip(ids, logits, strict=True):
        yield tokenizer.decode([token]) or f"token {token}", row

"""`ordinate classify`: classify images."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from ordinate.cli.console import SafeConsole
from ordinate.cli.load_trained import load_trained
from ordinate.core.checks import need, need_positive

if TYPE_CHECKING:
    from ordinate.models.vision import VisionTransformer

app = App(name="classify", help="Classify images with a trained model.")


@app.default
def classify(model: Path, *images: Path, top: Annotated[int, Parameter(alias="-n")] = 3) -> int:
    """Classify images: the most probable classes of each, with their probabilities.

    Parameters
    ----------
    model
        Folder of a vision model, as `ordinate train --model vision` prints it, or of a published one (ViT, DINOv2
        with a head: config.json, safetensors, and preprocessor_config.json for the preprocessing).
    images
        Image files: PNG, JPEG, or another format that pillow reads.
    top
        Number of classes shown for each.
    """
    import torch

    from ordinate.data.image_preprocessing import ImagePreprocessor, class_names

    need_positive("top", top)
    need(len(images) > 0, "classify needs images", "got none", "give their files")
    classifier = cast("VisionTransformer", load_trained(model, "vision"))
    need(
        classifier.head is not None,
        "classify needs a model with a classification head",
        f"{model} has none",
        "give one",
    )
    view = ImagePreprocessor.from_folder(model, classifier.vision.image, classifier.vision.channels)
    names = class_names(model, classifier.vision.labels, classifier.vision.vocabulary)
    table = Table("image", "class", "probability")
    for image in images:
        with torch.inference_mode():
            likely = classifier.logits(classifier(view.read(image)[None])).float().softmax(-1)[0]
        found = likely.topk(min(top, len(names)))
        for rank, (share, place) in enumerate(zip(found.values.tolist(), found.indices.tolist(), strict=True)):
            table.add_row(Text("" if rank else str(image)), Text(names[place]), f"{share:.1%}")
    SafeConsole().print(table)
    return 0

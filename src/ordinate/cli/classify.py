"""`ordinate classify`: say what images show."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ordinate.checks import need, need_positive
from ordinate.cli.trained import trained

if TYPE_CHECKING:
    from ordinate.models.vision import Vision

app = App(name="classify", help="Say what images show, by a trained model.")


@app.default
def classify(model: Path, *images: Path, top: Annotated[int, Parameter(alias="-n")] = 3) -> int:
    """Say what images show: the likeliest classes of each, with their probabilities.

    Parameters
    ----------
    model
        Folder of a model for images, as `ordinate train --model vision` prints it, or of a published one (ViT, DINOv2
        with a head: config.json, safetensors; preprocessor_config.json says how pictures are shown to it).
    images
        Files: PNG, JPEG, or what else pillow reads.
    top
        How many classes of each.
    """
    import torch

    from ordinate.data.views import View, class_names

    need_positive("top", top)
    need(len(images) > 0, "classify looks at images", "got none", "name their files")
    seer = cast("Vision", trained(model, "vision"))
    need(seer.head is not None, "a model that classifies has a head", f"{model} has none", "give one with a head")
    view = View.of(model, seer.vision.image, seer.vision.channels)
    names = class_names(model, seer.vision.labels, seer.vision.vocabulary)
    table = Table("image", "class", "probability")
    for image in images:
        with torch.inference_mode():
            likely = seer.predict(seer(view.read(image)[None])).float().softmax(-1)[0]
        found = likely.topk(min(top, len(names)))
        for rank, (share, place) in enumerate(zip(found.values.tolist(), found.indices.tolist(), strict=True)):
            table.add_row(Text("" if rank else str(image)), Text(names[place]), f"{share:.1%}")
    Console(highlight=False).print(table)
    return 0

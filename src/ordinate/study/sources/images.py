"""Images, whose class is to be said."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ordinate.checks import need
from ordinate.data.images import open_images, prepare_images
from ordinate.data.pictures import DIGITS, find_pictures
from ordinate.data.store import Split
from ordinate.data.views import NAMES, PREPROCESSOR, View, class_names
from ordinate.files import write_json
from ordinate.models.kinds import Model
from ordinate.models.shape import Shape
from ordinate.models.vision import VisionShape
from ordinate.study.aside import places
from ordinate.study.beginning import base_shape
from ordinate.study.plan import Plan
from ordinate.study.seen import measure_seen
from ordinate.study.source import Sizes, Source, kind_of
from ordinate.tasks.images import Images

# height and width where nothing is said [pixels]
DIGITS_SIDE, USUAL_SIDE = 8, 32
# an image has as many patches on each side where nothing is said
PATCHES = 8
# classes to try shapes with
CLASSES = 10


class Seeing(Source):
    """Images by class."""

    nature = "looks at images"

    @classmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """The patches of an image, and some classes."""
        kind_of(plan.task)
        side, patch = _sizes(plan)
        need(
            side % patch == 0,
            "patches must cover an image",
            f"got --patch {patch} for {side} pixels",
            "give one that divides --pixels",
        )
        return (side // patch) ** 2, CLASSES

    @classmethod
    def sizes(cls, plan: Plan, vocabulary: int) -> Sizes:
        """Those of an image too; a token more than patches stands for the image."""
        side, patch = _sizes(plan)
        fields = {
            "vocabulary": vocabulary,
            "image": (side, side),
            "patch": (patch, patch),
            "channels": _channels(plan),
            "tied": False,
            "bias": ("norm", "head"),
        }
        return Sizes(fields, 1 + plan.length, 1 + plan.length * max(plan.multiples) ** 2)

    @classmethod
    def taken_from(cls, plan: Plan, shape: Shape) -> dict[str, Any]:
        """It sees squares, in as many channels, as our own do, and has a head."""
        made = cast(VisionShape, shape)
        square = made.image[0] == made.image[1] and made.patch[0] == made.patch[1]
        need(square, "images and patches are squares", f"got {made.image} and {made.patch}", "give another model")
        grey = f"{'grey' if plan.images == DIGITS else 'coloured'} images"
        need(
            made.channels == _channels(plan), f"{grey} are looked at", f"got {made.channels} channels", "give others"
        )
        need(
            made.top == "classes", "a model that says classes has a head for them", f"got {made.top}", "give another"
        )
        view, own = View.of(Path(cast(str, plan.base)), made.image, made.channels), View(made.image, made.channels)
        same = set(view.mean) == set(own.mean) and set(view.deviation) == set(own.deviation)
        came = f"{PREPROCESSOR} says {view.mean} and {view.deviation}"
        need(same, "pixels are numbers from -1 to 1, of mean 0.5 and deviation 0.5", came, "give another model")
        return {"pixels": made.image[0], "patch": made.patch[0], "length": math.prod(made.cells(*made.image))}

    def prepare(self, tell: Callable[[str], None]) -> None:
        """Bring the images to one size."""
        tell(f"the images: {self.plan.images}")
        store = prepare_images(find_pictures(self.plan.images, _sizes(self.plan)[0]), self.data)
        if self.plan.base is not None:
            shape = cast(VisionShape, base_shape(self.plan))
            names = class_names(Path(self.plan.base), shape.labels, shape.vocabulary)
            came = f"got {', '.join(store.classes[:5])} for {', '.join(names[:5])}"
            need(
                store.classes == tuple(names),
                "the classes are those that the model has learned",
                came,
                "name them so",
            )

    @property
    def task(self) -> Images:
        """The images to learn from."""
        return self._images("train", aside=False)

    @property
    def aside(self) -> Images:
        """Every tenth of them."""
        return self._images("train", aside=True)

    @property
    def identity(self) -> dict[str, dict[str, Any]]:
        """The images."""
        return {"images": open_images(self.data).identity}

    def complete(self, shape: Shape) -> Shape:
        """With the names of the classes."""
        return replace(cast(VisionShape, shape), labels=open_images(self.data).classes)

    def measure(self, model: Model) -> dict[str, Any]:
        """Measure on images that were held out."""
        return measure_seen(model, self._images("validation"), self.plan)

    def save(self, folder: Path) -> None:
        """The names of the classes."""
        write_json(folder / NAMES, list(open_images(self.data).classes))

    def _images(self, split: Split, *, aside: bool = False) -> Images:
        store, options = open_images(self.data), kind_of(self.plan.task)[1] if split == "train" else {}
        pixels, labels = store.pixels(split), store.labels(split)
        if split == "train" and self.plan.tune:
            kept = places(len(labels), aside=aside)
            pixels, labels = pixels[kept], labels[kept]
        return Images(pixels=pixels, labels=labels, classes=store.classes, **options)


def _channels(plan: Plan) -> int:
    """Numbers of a pixel."""
    return 1 if plan.images == DIGITS else 3


def _sizes(plan: Plan) -> tuple[int, int]:
    """Height and width of an image and of a patch [pixels]."""
    side = plan.pixels or (DIGITS_SIDE if plan.images == DIGITS else USUAL_SIDE)
    return side, plan.patch or max(1, side // PATCHES)

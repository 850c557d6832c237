"""Data source for image classification."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ordinate.core.atomic_files import write_json
from ordinate.core.checks import need
from ordinate.core.progress import OnProgress, Progress
from ordinate.data.image_preprocessing import CLASS_NAMES_FILE, PREPROCESSOR, ImagePreprocessor, class_names
from ordinate.data.image_sources import DIGITS, resolve_images
from ordinate.data.image_store import open_images, prepare_images
from ordinate.data.tasks.images import Images
from ordinate.data.token_store import Split
from ordinate.evaluation.images import evaluate_images
from ordinate.evaluation.quantity import ACCURACY
from ordinate.models.registry import Model
from ordinate.models.shape import Shape
from ordinate.models.vision import VisionShape
from ordinate.study.data_source import DataSizes, DataSource, task_class
from ordinate.study.initial_model import base_shape
from ordinate.study.plan import Plan
from ordinate.study.tuning_split import need_examples, split_indices

# default height and width [pixels]
DIGITS_SIDE, DEFAULT_SIDE = 8, 32
# default number of patches along each side
PATCHES_PER_SIDE = 8
# number of classes assumed for shape checks
ASSUMED_CLASSES = 10


class ImageSource(DataSource):
    """Labelled images, classified by a vision model."""

    summary = "classifies images"
    quantity = ACCURACY

    @classmethod
    def check(cls, plan: Plan) -> tuple[int, int]:
        """Return the number of patches of an image, and an assumed number of classes."""
        task_class(plan.task)
        side, patch = _sizes(plan)
        need(
            side % patch == 0,
            "the patch size must divide the image size",
            f"got --patch-size {patch} for {side} pixels",
            "give a --patch-size that divides --image-size",
        )
        return (side // patch) ** 2, ASSUMED_CLASSES

    @classmethod
    def sizes(cls, plan: Plan, vocabulary: int) -> DataSizes:
        """Add image size, patch size and channels; one more input position is the class token."""
        side, patch = _sizes(plan)
        fields = {
            "vocabulary": vocabulary,
            "image": (side, side),
            "patch": (patch, patch),
            "channels": _channels(plan),
            "tie_embeddings": False,
            "bias": ("norm", "head"),
        }
        return DataSizes(fields, 1 + plan.length, 1 + plan.length * max(plan.eval_length_multiples) ** 2)

    @classmethod
    def fields_of_base(cls, plan: Plan, shape: Shape) -> dict[str, Any]:
        """Check that the model classifies square images of the same channels and pixel scaling."""
        made = cast(VisionShape, shape)
        square = made.image[0] == made.image[1] and made.patch[0] == made.patch[1]
        need(square, "images and patches must be square", f"got {made.image} and {made.patch}", "give another model")
        grey = f"{'grey' if plan.images == DIGITS else 'coloured'} images"
        need(
            made.channels == _channels(plan),
            f"the model must accept {grey}",
            f"got {made.channels} channels",
            "give other --images",
        )
        need(
            made.head == "classes",
            "the model must have a classification head",
            f"got {made.head}",
            "give another model",
        )
        view, own = (
            ImagePreprocessor.from_folder(Path(cast(str, plan.base)), made.image, made.channels),
            ImagePreprocessor(made.image, made.channels),
        )
        same = set(view.mean) == set(own.mean) and set(view.std) == set(own.std)
        came = f"{PREPROCESSOR} has mean {view.mean} and standard deviation {view.std}"
        need(same, "pixels must be scaled to -1 .. 1 (mean 0.5, standard deviation 0.5)", came, "give another model")
        return {
            "image_size": made.image[0],
            "patch_size": made.patch[0],
            "length": math.prod(made.patch_grid(*made.image)),
        }

    def prepare(self, on_progress: OnProgress) -> None:
        """Resize the images and store them."""
        on_progress(Progress(stage="reading", message=f"reading the images: {self.plan.images}"))
        store = prepare_images(resolve_images(self.plan.images, _sizes(self.plan)[0]), self.data)
        self.report_left_out(store.manifest, on_progress)
        if self.plan.tune_lr:
            need_examples(len(store.labels("train")), "images", self.plan.images)
        if self.plan.base is not None:
            shape = cast(VisionShape, base_shape(self.plan))
            names = class_names(Path(self.plan.base), shape.labels, shape.vocabulary)
            came = f"got {', '.join(store.classes[:5])} for {', '.join(names[:5])}"
            need(
                store.classes == tuple(names),
                "the classes must be those of the trained model",
                came,
                "rename the folders",
            )

    @property
    def task(self) -> Images:
        """Training images, without the tuning split."""
        return self._images("train", tuning=False)

    @property
    def tuning_task(self) -> Images:
        """The tuning split: every tenth training image."""
        return self._images("train", tuning=True)

    @property
    def identity(self) -> dict[str, dict[str, Any]]:
        """Identity of the image data."""
        return {"images": open_images(self.data).identity}

    def complete_shape(self, shape: Shape) -> Shape:
        """Add the class names."""
        return replace(cast(VisionShape, shape), labels=open_images(self.data).classes)

    def measure(self, model: Model) -> dict[str, Any]:
        """Evaluate on held-out images."""
        return evaluate_images(model, self._images("validation"), self.plan)

    def save(self, folder: Path) -> None:
        """Save the class names."""
        write_json(folder / CLASS_NAMES_FILE, list(open_images(self.data).classes))

    def _images(self, split: Split, *, tuning: bool = False) -> Images:
        store, options = open_images(self.data), task_class(self.plan.task)[1] if split == "train" else {}
        pixels, labels = store.pixels(split), store.labels(split)
        if split == "train" and self.plan.tune_lr:
            kept = split_indices(len(labels), tuning=tuning)
            pixels, labels = pixels[kept], labels[kept]
        return Images(pixels=pixels, labels=labels, classes=store.classes, **options)


def _channels(plan: Plan) -> int:
    """Channels of an image: 1 for grey images, 3 for RGB."""
    return 1 if plan.images == DIGITS else 3


def _sizes(plan: Plan) -> tuple[int, int]:
    """Side length of an image and of a patch [pixels]."""
    side = plan.image_size or (DIGITS_SIDE if plan.images == DIGITS else DEFAULT_SIDE)
    return side, plan.patch_size or max(1, side // PATCHES_PER_SIDE)

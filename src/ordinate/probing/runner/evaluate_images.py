"""Evaluate image classifiers by their folders: the Python twin of `ordinate evaluate --images`."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch

from ordinate.core.checks import need, need_positive
from ordinate.core.progress import OnProgress, Progress, ignore
from ordinate.data.batch import Batch
from ordinate.data.image_preprocessing import ImagePreprocessor, class_names
from ordinate.data.image_sources import DIGITS, ImageFolder, resolve_images
from ordinate.data.image_store import ImageStore, open_images
from ordinate.data.tasks.images import Images, scale_pixels
from ordinate.evaluation.images import accuracy_at
from ordinate.evaluation.lengths import Lengths
from ordinate.evaluation.outcome import Evaluation
from ordinate.evaluation.quantity import ACCURACY
from ordinate.evaluation.side_by_side import MeasuredModel, differences_of
from ordinate.models.vision import VisionTransformer
from ordinate.pretrained.read_model import read_model
from ordinate.probing.instrumentation.trained_length import distinct_names, shared_study, training_of

DEFAULT_SAMPLES = 512


def evaluate_images(
    *folders: str | Path,
    images: str | None = None,
    lengths: Sequence[int] | None = None,
    samples: int | None = None,
    on_progress: OnProgress = ignore,
) -> Evaluation:
    """Evaluate image classifiers on the same images, at their trained size and enlarged.

    Args:
        folders: folders of Ordinate models, or of published ones that `ordinate.load` reads.
        images: `digits`, or a folder with one sub-folder of images for each class; None: the held-out images of the
            study that trained the models.
        lengths: factors by which the sides of the images are enlarged; None: 1.
        samples: largest number of images; None: as many as the study took, or 512.
        on_progress: receives the fraction done.

    Raises:
        ValueError: a folder without such a model, or images of other classes.
    """
    need(bool(folders), "an evaluation needs a model", "got none", "give the folder of one")
    names, trainings = distinct_names(folders), [training_of(None, Path(folder)) for folder in folders]
    study = shared_study(trainings)
    plan = (
        study.plan if study is not None and study.plan is not None and images in (None, study.plan.images) else None
    )
    need(plan is not None or images is not None, "the images must be named", "got none", "give --images")
    asked = Lengths(tuple(lengths) if lengths else (1,))
    count = samples if samples is not None else DEFAULT_SAMPLES if plan is None else plan.eval_samples
    need_positive("samples", count)
    store = open_images(study.data) if plan and study and study.data else None
    title, measured, read = f"held-out images of {store.manifest['name']}" if store else str(images), [], 0
    for place, (folder, name, training) in enumerate(zip(map(Path, folders), names, trainings, strict=True)):
        model = cast(VisionTransformer, read_model(folder, "vision")).eval()
        need(model.head is not None, "a model must have a classification head", f"{name} has none", "give another")
        batch = _held_out(store, count) if store else _batch(folder, model, str(images), count)
        read, rows = len(batch.targets), []
        for index, times in enumerate(asked.given):
            rows.append(accuracy_at(model, batch, training.precision, times))
            done = (place + (index + 1) / len(asked.given)) / len(names)
            on_progress(Progress(item=title, stage="measuring", done=done, total=1.0))
        side = model.vision.image[0]
        measured.append(MeasuredModel(name, ACCURACY, rows, side, "config.json", extent_unit="pixels"))
    on_progress(Progress(item=title, stage="measured", done=1.0, total=1.0))
    notes = () if plan else ("Whether the images were in the training data is not known.",)
    results = tuple(one.result for one in measured)
    return Evaluation(title, "images", read, results, differences_of(measured), notes)


def _held_out(store: ImageStore, count: int) -> Batch:
    """Return the images that a study has held out."""
    held = Images(pixels=store.pixels("validation"), labels=store.labels("validation"), classes=store.classes)
    return held.all_images(count=count)


def _batch(folder: Path, model: VisionTransformer, images: str, count: int) -> Batch:
    """Return images with the classes of a model."""
    shape = model.vision
    source = resolve_images(images, shape.image[0])
    names = class_names(folder, shape.labels, shape.vocabulary)
    missing = sorted(set(source.classes) - set(names))
    came = f"{', '.join(missing[:5])} not among {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
    need(not missing, "the classes of the images must be classes of the model", came, "rename the folders")
    wanted = [names.index(one) for one in source.classes]
    if isinstance(source, ImageFolder):
        view = ImagePreprocessor.from_folder(folder, shape.image, shape.channels)
        files = [(file, label) for label, own_files in enumerate(source.files.values()) for file in own_files]
        files = [files[place] for place in _spread(len(files), count)]
        pixels = torch.stack([view.read(file) for file, _ in files])
        return Batch(pixels, torch.tensor([wanted[label] for _, label in files]))
    came = f"got {shape.channels} channels"
    need(shape.channels == source.channels, f"{DIGITS} are grey", came, "give other images")
    found = list(source.images())
    found = [found[place] for place in _spread(len(found), count)]
    stacked = torch.from_numpy(np.stack([one.pixels for one in found]))
    return Batch(scale_pixels(stacked), torch.tensor([wanted[one.label] for one in found]))


def _spread(total: int, count: int) -> list[int]:
    """At most so many indices, at even intervals."""
    return np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(int)).tolist()

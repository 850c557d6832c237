import numpy as np
import pytest
import torch

from ordinate.data.tasks.images import Images

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 2, 4, 8), np.uint8)
LABELS = np.array([0, 2, 2, 1, 2, 0])


def made(**options):
    return Images(**{"pixels": PIXELS, "labels": LABELS, "classes": ("eel", "newt", "owl")} | options)


def test_a_batch_has_images_with_their_classes():
    batch = made().sample(torch.Generator().manual_seed(0), 300)
    assert batch.inputs.shape == (300, 2, 4, 8)
    assert batch.targets.shape == (300,)
    assert batch.inputs.dtype == torch.float32
    seen = set()
    for image, label in zip(batch.inputs, batch.targets.tolist(), strict=True):
        place = next(
            place for place in range(6) if np.array_equal(((image + 1) * 127.5).round().byte(), PIXELS[place])
        )
        assert label == LABELS[place]
        seen.add(place)
    assert seen == set(range(6))
    assert torch.equal(batch.slices["class"], batch.targets)


def test_pixels_run_from_minus_one_to_one():
    black, white = (made(pixels=np.full_like(PIXELS, value)).all_images().inputs for value in (0, 255))
    assert (black == -1).all()
    assert (white == 1).all()


def test_all_or_some_images_come_in_dataset_order():
    task = made()
    assert task.all_images().targets.tolist() == LABELS.tolist()
    assert task.all_images(4, 5).targets.tolist() == [2, 0]
    assert torch.equal(task.all_images(2, 2).inputs, task.all_images().inputs[2:4])


def test_translated_images_are_filled_with_black():
    task = made(pixels=np.full((1, 1, 4, 4), 255, np.uint8), labels=np.array([0]), shift=1)
    white = (task.sample(torch.Generator().manual_seed(0), 200).inputs == 1).sum((1, 2, 3))
    assert sorted(white.unique().tolist()) == [9, 12, 16]
    mark = np.zeros((1, 1, 5, 5), np.uint8)
    mark[0, 0, 2, 2] = 255
    moved = made(pixels=mark, labels=np.array([0]), shift=2).sample(torch.Generator().manual_seed(0), 300).inputs
    assert (moved == 1).any(0).all()


def test_sizes_and_baseline_accuracy():
    task = made()
    assert (task.vocabulary, task.length, task.baseline_accuracy, task.model_kind) == (3, 32, 0.5, "vision")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"pixels": PIXELS.astype(np.float32)}, r"pixels must be uint8 of shape .*; got float32 of \(6, 2, 4, 8\)"),
        ({"labels": LABELS[:3]}, r"each image needs a label; got labels of shape \(3,\) for 6 images"),
        ({"classes": ("eel", "newt")}, "labels must be in 0 to 1; got 0 to 2; name every class"),
        ({"shift": -1}, "shift must not be negative; got -1"),
    ],
)
def test_invalid_arguments_are_refused(options, match, untyped):
    with pytest.raises(ValueError, match=match):
        made(**options)

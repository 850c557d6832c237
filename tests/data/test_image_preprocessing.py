import json

import numpy as np
import pytest
import torch

from ordinate.data.image_preprocessing import ImagePreprocessor
from ordinate.data.image_sources import read_image
from ordinate.data.tasks.images import scale_pixels

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def picture(tmp_path):
    """A colour picture of 40 by 30 pixels, as PNG."""
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    Image.fromarray(pixels).resize((40, 30)).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


def said(folder, **config):
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    return ImagePreprocessor.from_folder(folder, (8, 8), 3)


@pytest.mark.parametrize("channels", [1, 3])
def test_without_a_config_images_are_preprocessed_as_in_training(picture, channels):
    view = ImagePreprocessor.from_folder(picture.parent, (8, 8), channels)
    expected = scale_pixels(torch.tensor(read_image(picture, 8, channels)))
    assert view.read(picture).shape == (channels, 8, 8)
    assert torch.allclose(view.read(picture), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("ViTImageProcessorPil", {"size": {"height": 12, "width": 8}, "resample": 2}),
        ("ViTImageProcessorPil", {"size": {"height": 8, "width": 8}, "image_mean": [0.1, 0.2, 0.3], "resample": 3}),
        (
            "BitImageProcessorPil",
            {
                "size": {"shortest_edge": 12},
                "crop_size": {"height": 8, "width": 8},
                "do_center_crop": True,
                "resample": 3,
                "image_mean": [0.485, 0.456, 0.406],
                "image_std": [0.229, 0.224, 0.225],
            },
        ),
    ],
)
def test_preprocessing_equals_that_of_transformers(name, config, picture):
    transformers = pytest.importorskip("transformers")
    processor = getattr(transformers, name, None)
    if processor is None:
        pytest.skip(f"this transformers has no {name}")
    expected = processor(**config)(Image.open(picture), return_tensors="pt")["pixel_values"][0]
    out = said(picture.parent, **config | {"do_center_crop": config.get("do_center_crop", False)}).read(picture)
    assert out.shape == expected.shape
    assert (out - expected).abs().max() < 1e-5


def test_exif_rotation_is_applied(tmp_path):
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[:, :4] = 255
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = 3
    image.save(tmp_path / "turned.png", exif=exif)
    shown = ImagePreprocessor((4, 8)).read(tmp_path / "turned.png")
    assert (shown[:, :, 4:] > 0.5).all()
    assert (shown[:, :, :4] < -0.5).all()


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (
            {"size": {"height": "tall", "width": 8}, "image_mean": "grey"},
            "must have a valid size, crop_size, image_mean and",
        ),
        ({"size": {}}, r"preprocessor_config.json does not \('height'\); correct it, or remove it"),
        ({"image_std": [0, 1, 1]}, "each channel needs a mean and a positive std; got"),
        ({"image_mean": [0.5, 0.5]}, "each channel needs a mean and a positive std; got"),
    ],
)
def test_an_invalid_preprocessor_config_is_refused(config, match, picture):
    with pytest.raises(ValueError, match=match):
        said(picture.parent, **config)


def test_an_unreadable_image_is_named(tmp_path):
    (tmp_path / "eel.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    with pytest.raises(ValueError, match=r"an image must be readable; .*eel.png is not .*; repair or remove it"):
        ImagePreprocessor((8, 8)).read(tmp_path / "eel.png")
    with pytest.raises(ValueError, match=r"an image must be readable; .*none.png is not"):
        ImagePreprocessor((8, 8)).read(tmp_path / "none.png")
    with pytest.raises(ValueError, match="images must be greyscale or RGB; got 2 channels"):
        ImagePreprocessor((8, 8), 2).read(tmp_path / "eel.png")

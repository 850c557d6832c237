import os

import numpy as np
import pytest

from ordinate.data.image_sources import resolve_images
from ordinate.data.image_store import open_images, prepare_images

pillow = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path):
    for place, name in enumerate(("cat", "dog")):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(30):
            image = pillow.fromarray(np.full((10, 12, 3), 100 * place + number, np.uint8))
            image.save(tmp_path / "pets" / name / f"{number}.png")
    return tmp_path / "pets"


def test_a_folder_for_each_class_becomes_images_of_one_size(folder, tmp_path):
    store = prepare_images(resolve_images(str(folder), 8), tmp_path / "out")
    assert store.classes == ("cat", "dog")
    seen = []
    for split in ("train", "validation"):
        pixels, labels = store.pixels(split), store.labels(split)
        assert pixels.shape == (len(labels), 3, 8, 8)
        assert (pixels[:, 0, 0, 0] // 100).tolist() == labels.tolist()
        seen += pixels[:, 0, 0, 0].tolist()
    assert sorted(seen) == [*range(30), *range(100, 130)]
    before = (tmp_path / "out" / "train.npy").stat().st_mtime_ns
    prepare_images(resolve_images(str(folder), 8), tmp_path / "out")
    assert (tmp_path / "out" / "train.npy").stat().st_mtime_ns == before
    assert prepare_images(resolve_images(str(folder), 4), tmp_path / "out").pixels("train").shape[2:] == (4, 4)
    (tmp_path / "out" / "train.npy").write_bytes(b"half")
    with pytest.raises(ValueError, match="images must be complete"):
        open_images(tmp_path / "out")


def test_copies_of_an_image_are_on_one_side_whatever_their_names(folder, tmp_path):
    for name in ("cat", "dog"):
        for number in range(30):
            image = pillow.open(folder / name / f"{number}.png")
            image.save(folder / name / f"copy of {number}.bmp")
            # another size, the same once they are brought to one
            image.resize((24, 20)).save(folder / name / f"larger {number}.png")
    store = prepare_images(resolve_images(str(folder), 8), tmp_path / "out")
    learned, held = ({image.tobytes() for image in store.pixels(split)} for split in ("train", "validation"))
    assert len(learned) + len(held) == 60
    assert not learned & held
    assert "by a hash of their pixels" in store.manifest["held_out"]


def test_digits_have_ten_classes(tmp_path):
    pytest.importorskip("sklearn")
    store = prepare_images(resolve_images("digits", 16), tmp_path / "out")
    assert store.manifest["train_images"] + store.manifest["validation_images"] == 1797
    assert store.pixels("train").shape[1:] == (1, 16, 16)
    assert np.array_equal(store.pixels("train")[:, :, ::2, ::2], store.pixels("train")[:, :, 1::2, 1::2])
    assert 0.1 <= store.manifest["chance"] < 0.15


def test_invalid_image_sources_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="images must be digits or the path of a folder; 'digit' is neither"):
        resolve_images("digit", 8)
    with pytest.raises(ValueError, match=r"one sub-folder per class, at least two; .*cat has 0"):
        resolve_images(str(folder / "cat"), 8)
    (folder / "dog" / "broken.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"an image must be readable; .*broken.png is not"):
        prepare_images(resolve_images(str(folder), 8), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for path in (folder / "dog").iterdir():
        if path.name != "0.png":
            path.unlink()
    with pytest.raises(ValueError, match=r"each class needs (training|held-out) images"):
        prepare_images(resolve_images(str(folder), 8), tmp_path / "out")


def test_what_is_left_out_is_counted_by_reason(folder, tmp_path):
    (folder / "notes.txt").write_text("x")
    (folder / "cat" / "notes.txt").write_text("x")
    (folder / "cat" / ".hidden.png").write_bytes(b"")
    (folder / "dog" / "lost.png").symlink_to("nowhere")
    store = prepare_images(resolve_images(str(folder), 8), tmp_path / "out")
    assert store.manifest["left_out"] == (
        "1 hidden (cat/.hidden.png), 1 no image by its name (cat/notes.txt), 1 no regular file (dog/lost.png), "
        "1 outside the folders of classes (notes.txt)"
    )


def test_names_that_are_not_utf8_are_escaped(folder, tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    (folder / "cat" / "0.png").rename(folder / "cat" / name)
    assert "cat/caf\\xe9.png" in [image.name for image in resolve_images(str(folder), 8).images()]
    prepare_images(resolve_images(str(folder), 8), tmp_path / "out")
    (folder / "cat" / name).write_bytes(b"")
    with pytest.raises(ValueError, match=r"an image must be readable; .*caf\\xe9\.png is not"):
        list(resolve_images(str(folder), 8).images())


@pytest.mark.parametrize("size", [0, -1, 10**9])
def test_an_impossible_size_is_refused(folder, size):
    with pytest.raises(ValueError, match=f"the image size must be 1 to 4096 pixels; got {size}; give another"):
        resolve_images(str(folder), size)

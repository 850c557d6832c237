"""Draw every scheme of the catalog into docs/images/schemes: `python .ci/pictures.py`."""

from pathlib import Path

from ordinate import catalog
from ordinate.cli.picture import save_picture
from ordinate.portrait import portrait, read

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "schemes"
# what does nothing by itself is drawn with a scheme that shows it
TOGETHER = {"none": "none+rope/none", "randomized": "randomized+sinusoidal"}


def main() -> None:
    """Draw them all."""
    import torch

    for name in catalog.names("ordinate.schemes"):
        torch.manual_seed(0)
        text = TOGETHER.get(name, name)
        save_picture(FOLDER / f"{name}.png", text, portrait(read(text)))


if __name__ == "__main__":
    main()

"""Draw the picture of every scheme into docs/images/schemes: `python .ci/pictures.py`."""

from pathlib import Path

from ordinate.cli.save_plot import save_plot
from ordinate.core import catalog
from ordinate.schemes._plots import build_scheme, scheme_plots

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "schemes"
# schemes without an effect of their own are drawn together with another one
TOGETHER = {"none": "none+rope/none", "randomized": "randomized+sinusoidal"}


def main() -> None:
    """Draw all pictures."""
    import torch

    for name in catalog.names("ordinate.schemes"):
        torch.manual_seed(0)
        text = TOGETHER.get(name, name)
        save_plot(FOLDER / f"{name}.png", text, scheme_plots(build_scheme(text)))


if __name__ == "__main__":
    main()

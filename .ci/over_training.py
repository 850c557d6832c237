"""Write what docs/lab.md shows of heads over training, from a committed comparison: `python .ci/over_training.py`.

`python .ci/over_training.py --commands` prints the commands that train the model and compare its checkpoints, and
`python .ci/over_training.py FOLDER` keeps the finding of the comparison of a run.
"""

import sys
from pathlib import Path
from typing import Any

from generated_parts import Pages, write

from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.core.finding import Finding
from ordinate.probing import compare
from ordinate.report.charts import finding_chart

ROOT = Path(__file__).parents[1]
PAGE, RESULT = ROOT / "docs" / "lab.md", ROOT / "studies" / "lab" / "over_training.json"
PICTURE = ROOT / "docs" / "images" / "lab" / "over_training.png"
CHART = "Strongest heads over steps"
TRAIN = (
    "ordinate train rope --steps 1600 --layers 2 --width 128 --length 128 --warmup-steps 100 --learning-rate 0.003 "
    "--precision fp32 --keep-checkpoints 1 100 200 300 400 600 800 1200 --out RUN"
)


def commands() -> list[str]:
    """Return the commands that train the model and keep the finding."""
    return [TRAIN, "python .ci/over_training.py RUN"]


def keep(folder: str) -> None:
    """Compare the checkpoints of a run and keep the finding."""
    found = compare(folder, lengths=[1], samples=64).finding
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    write_checksummed(RESULT, found.model_dump(mode="json"))


def kept() -> Finding:
    """Return the committed finding."""
    return Finding.model_validate(read_checksummed(RESULT))


def charts() -> dict[Path, dict[str, Any]]:
    """The picture of the strongest heads over steps, as a Vega-Lite chart."""
    chart = next(one for one in kept().charts if one.title == CHART)
    return {PICTURE: {**finding_chart(chart), "width": 560, "background": "white"}}


def pages() -> Pages:
    """Return the page with its generated part."""
    answer = kept().answer
    about = answer[answer.index("Do kinds of heads") : answer.index(" Of each two models")]
    shown = "\n".join(commands())
    lines = [
        "A decoder of two layers, trained on Python's standard library as bytes:",
        f"> {about}",
        f"![Attention of the strongest head of each kind over training steps](images/lab/{PICTURE.name})",
        f"Made by:\n\n```\n{shown}\n```",
    ]
    return {PAGE: {"over training": "\n\n".join(lines)}}


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--commands" in sys.argv:
        print("\n".join(commands()))
    elif given:
        keep(given[0])
    else:
        write(pages())

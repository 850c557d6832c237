"""Short answers of docs/questions by the panel in which they can be tried, in `related.json` of this package.

The questions themselves are in the repository, not in an installation; `.ci/answers.py` writes the file.
"""

import json
from importlib import resources

FILE = "related.json"


def load() -> dict[str, list[dict[str, str]]]:
    """Return, for each panel, its questions: question, word, answer, change, source, anchor."""
    return json.loads(resources.files("ordinate.explorer").joinpath(FILE).read_text(encoding="utf-8"))

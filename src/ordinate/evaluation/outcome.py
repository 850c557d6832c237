"""The evaluation of one or more models on the same data, in words and as a file."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ordinate.core.atomic_files import write_json
from ordinate.evaluation.result import ModelDifference, ModelResult, PositionDifference
from ordinate.evaluation.wording import answer

# version of the file that `save` writes
FORMAT = 1


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of one or more models on the same data; `print` shows the answer.

    Args:
        data: name of the data.
        units: what the intervals take a sample of: documents, pairs, images.
        count: number of them.
        models: the result of each model.
        differences: paired differences between the models.
        notes: what else must be known, as sentences.
        by_position: paired differences by position at the longest common length, of models that read the same tokens.
    """

    data: str
    units: str
    count: int
    models: tuple[ModelResult, ...]
    differences: tuple[ModelDifference, ...] = ()
    notes: tuple[str, ...] = ()
    by_position: tuple[PositionDifference, ...] = ()

    @property
    def record(self) -> dict[str, Any]:
        """The evaluation as JSON; `rows` of a model has the format of a study's results."""
        return {"format": FORMAT, "kind": "evaluation", "answer": str(self), **asdict(self)}

    def save(self, path: Path) -> None:
        """Write the evaluation to a JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.record)

    def __str__(self) -> str:
        return "\n".join(answer(self.models, self.differences))

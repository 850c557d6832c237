"""Names of tensors in published files that differ from those of the models of transformers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ordinate.pretrained._family import TensorRule


def renamed_rules(rules: Sequence[TensorRule], parts: Mapping[str, str]) -> list[TensorRule]:
    """Return tensor mappings with other parts of the names in checkpoints, each replaced in turn."""

    def renamed(name: str) -> str:
        for part, other in parts.items():
            name = name.replace(part, other)
        return name

    return [replace(rule, theirs=tuple(map(renamed, rule.theirs))) for rule in rules]

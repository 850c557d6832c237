"""Write the tables of docs/published.md about what `load` reads and refuses: classes, and settings of config.json.

Every value of tests/pretrained/fields.py, which the fuzzer draws too, is given to its family with the usual sizes;
what the family refuses goes into the table with its own message. No checkpoint and no transformers is needed.
"""

import json
import runpy
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from generated_parts import Pages, write

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "published.md"
TABLES = runpy.run_path(str(ROOT / "tests" / "pretrained" / "fields.py"))
# stands for a setting that is left out
OUT = TABLES["OUT"]
LONGEST = 60
# ends of the names of classes that transformers has for one of the families at least
ENDS = (
    "Model", "ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification",
    "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice", "ForNextSentencePrediction",
    "ForImageClassification", "ForMaskedImageModeling", "ForConditionalGeneration", "EncoderModel", "MTModel",
    "DoubleHeadsModel",
)  # fmt: skip


class EveryTensor(frozenset[str]):
    """The tensor names of a checkpoint that has whatever its class needs."""

    def __contains__(self, name: object) -> bool:
        """Return True."""
        return True


def family(name: str) -> Any:
    """Return a family by the name of its file."""
    from ordinate.core import catalog
    from ordinate.pretrained._family import Family

    return catalog.load("ordinate.pretrained.families", Family, name)()


def shown(value: Any) -> str:
    """Return a value as config.json has it, shortened."""
    text = json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def refused(name: str, sizes: dict[str, Any], fields: dict[str, list[Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield the setting, the value and the reason of each refusal of a family."""
    for field, values in sorted(fields.items()):
        distinct = {json.dumps(value): value for value in values if value is not OUT}
        for value in distinct.values():
            read = family(name)
            try:
                read.read_config({**sizes, field: value}, EveryTensor())
            except ValueError as error:
                reason = str(error).split("; ")[0].removeprefix(f"{read.model_type} ")
                yield field, shown(value), reason


def settings_table(drawn: dict[str, Any]) -> str:
    """Return the table of refused settings; families that refuse the same share a row."""
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    for name, (sizes, fields, _) in drawn.items():
        for field, value, reason in refused(name, sizes, fields):
            values = rows.setdefault((field, reason), {}).setdefault(name, [])
            values.append(value)
    lines = ["| setting | refused | families | reason |", "| --- | --- | --- | --- |"]
    for (field, reason), families in sorted(rows.items()):
        shared: dict[tuple[str, ...], list[str]] = {}
        for name, values in families.items():
            shared.setdefault(tuple(values), []).append(name)
        for values, names in shared.items():
            listed = ", ".join(f"`{value}`" for value in values)
            cells = (f"`{field}`", listed, ", ".join(sorted(names)), reason)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def class_table(drawn: dict[str, Any]) -> str:
    """Return the table of the classes of transformers that load with their own outputs."""
    lines = ["| family | classes |", "| --- | --- |"]
    for name, (sizes, _, _) in sorted(drawn.items()):
        one = family(name)
        usual = one.architecture(one.read_config(sizes, EveryTensor()))
        stems = {known.removesuffix(end) for known in (usual, one.base_class) for end in ENDS if known.endswith(end)}
        found = []
        for named in sorted({stem + end for stem in stems for end in ENDS}):
            read = family(name)
            given = {**sizes, "architectures": [named]}
            with suppress(ValueError):
                # a bare model whose head is tied is read with that head
                if named in (read.architecture(read.read_config(given, EveryTensor())), read.base_class):
                    found.append(named)
        lines.append(f"| {name} | {', '.join(found)} |")
    return "\n".join(lines)


def pages() -> Pages:
    """Return the page with its tables."""
    drawn = TABLES["FIELDS"]
    return {PAGE: {"classes": class_table(drawn), "refusals": settings_table(drawn)}}


if __name__ == "__main__":
    write(pages())
